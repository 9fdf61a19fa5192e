#include "unary_block.hpp"

namespace tensorlite::cpu::TL_CPU_NS {
BlockFunction unary_backward_double(UnaryOp op) { return derivative_function<double>(op); }
}  // namespace tensorlite::cpu::TL_CPU_NS
