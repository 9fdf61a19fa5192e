#include "binary.cuh"

namespace tensorlite::cuda {
TL_BINARY_SIGNATURES(, std::int32_t)
TL_BINARY_SIGNATURES(, std::int64_t)
TL_BINARY_SIGNATURES(, std::uint8_t)
TL_BINARY_SIGNATURES(, bool)
}  // namespace tensorlite::cuda
