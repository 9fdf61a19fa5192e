#include "unary_block.hpp"

namespace tensorlite::cpu::TL_CPU_NS {
BlockFunction unary_double(UnaryOp op) { return value_function<double>(op); }
}  // namespace tensorlite::cpu::TL_CPU_NS
