#include "binary_block.hpp"

namespace tensorlite::cpu::TL_CPU_NS {
BlockFunction binary_double(BinaryOp op) { return binary_function<double>(op); }
}  // namespace tensorlite::cpu::TL_CPU_NS
