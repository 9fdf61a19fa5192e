#include "unary_block.hpp"

namespace tensorlite::cpu::TL_CPU_NS {
BlockFunction unary_float(UnaryOp op) { return value_function<float>(op); }
}  // namespace tensorlite::cpu::TL_CPU_NS
