#include "binary.cuh"

namespace tensorlite::cuda {
TL_BINARY(, float)
TL_BINARY_SCALAR(, float)
}  // namespace tensorlite::cuda
