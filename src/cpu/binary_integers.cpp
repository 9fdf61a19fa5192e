#include "binary_block.hpp"

namespace tensorlite::cpu::TL_CPU_NS {
BlockFunction binary_int32(BinaryOp op) { return binary_function<std::int32_t>(op); }
BlockFunction binary_int64(BinaryOp op) { return binary_function<std::int64_t>(op); }
BlockFunction binary_uint8(BinaryOp op) { return binary_function<std::uint8_t>(op); }
}  // namespace tensorlite::cpu::TL_CPU_NS
