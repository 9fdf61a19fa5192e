#include "binary.cuh"

namespace tensorlite::cuda {
TL_BINARY(, std::int32_t)
TL_BINARY(, std::int64_t)
TL_BINARY(, std::uint8_t)
TL_BINARY(, bool)
}  // namespace tensorlite::cuda
