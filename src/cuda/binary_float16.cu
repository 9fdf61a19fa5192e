#include "binary.cuh"

namespace tensorlite::cuda {
TL_BINARY(, float16)
TL_BINARY_SCALAR(, float16)
}  // namespace tensorlite::cuda
