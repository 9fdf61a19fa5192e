// Block functions of the binary ops, one file per compute type to keep each quick to compile. in: a, b; no parameters.
#pragma once

#include "blocks.hpp"

#include <tensorlite/elementwise.hpp>

namespace tensorlite::cpu::TL_CPU_NS {

// Null when the op is not for this type.
BlockFunction binary_float(BinaryOp op);
BlockFunction binary_double(BinaryOp op);
BlockFunction binary_int32(BinaryOp op);
BlockFunction binary_int64(BinaryOp op);
BlockFunction binary_uint8(BinaryOp op);

}  // namespace tensorlite::cpu::TL_CPU_NS
