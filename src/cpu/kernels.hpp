// Declarations of every kernel, in the namespace of this instruction set.
#pragma once

#include "isa.hpp"

#include <tensorlite/backend.hpp>

namespace tensorlite::cpu::TL_CPU_NS {
TL_KERNELS(TL_KERNEL_DECLARATION)
}
