#include "binary.cuh"

namespace tensorlite::cuda {
TL_BINARY_SIGNATURES(, float16)
}  // namespace tensorlite::cuda
