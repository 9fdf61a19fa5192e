#include "unary_block.hpp"

namespace tensorlite::cpu::TL_CPU_NS {
BlockFunction unary_backward_float(UnaryOp op) { return derivative_function<float>(op); }
}  // namespace tensorlite::cpu::TL_CPU_NS
