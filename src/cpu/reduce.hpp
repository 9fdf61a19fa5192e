// Reductions that other kernels use.
#pragma once

#include "isa.hpp"

#include <tensorlite/backend.hpp>

namespace tensorlite::cpu::TL_CPU_NS {

/// Mean and sum of squared deviations from it over the rows of a floating [rows, C] view, in one pass that does not cancel. rows > 0.
void column_moments(const Context& context, const View& in, double* mean, double* squares);

}  // namespace tensorlite::cpu::TL_CPU_NS
