#include "binary_block.hpp"

namespace tensorlite::cpu::TL_CPU_NS {
BlockFunction binary_float(BinaryOp op) { return binary_function<float>(op); }
}  // namespace tensorlite::cpu::TL_CPU_NS
