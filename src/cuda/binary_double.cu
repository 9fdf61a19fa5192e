#include "binary.cuh"

namespace tensorlite::cuda {
TL_BINARY(, double)
TL_BINARY_SCALAR(, double)
}  // namespace tensorlite::cuda
