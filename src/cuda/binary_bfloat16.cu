#include "binary.cuh"

namespace tensorlite::cuda {
TL_BINARY(, bfloat16)
TL_BINARY_SCALAR(, bfloat16)
}  // namespace tensorlite::cuda
