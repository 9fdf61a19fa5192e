#include "binary.cuh"

namespace tensorlite::cuda {
TL_BINARY_SIGNATURES(, float)
}  // namespace tensorlite::cuda
