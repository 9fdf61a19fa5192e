// Block functions of the unary ops, one file per compute type to keep each quick to compile.
#pragma once

#include "blocks.hpp"

#include <tensorlite/elementwise.hpp>

namespace tensorlite::cpu::TL_CPU_NS {

/// in[0]: x; parameters: UnaryParams.
BlockFunction unary_float(UnaryOp op);
BlockFunction unary_double(UnaryOp op);

/// in: grad_out, x, result; an input the derivative does not look at may be null. parameters: UnaryParams.
BlockFunction unary_backward_float(UnaryOp op);
BlockFunction unary_backward_double(UnaryOp op);

/// Bound by memory rather than by arithmetic.
bool is_cheap(UnaryOp op);

}  // namespace tensorlite::cpu::TL_CPU_NS
