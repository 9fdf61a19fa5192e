#include "binary.cuh"

namespace tensorlite::cuda {
TL_BINARY_SIGNATURES(, double)
}  // namespace tensorlite::cuda
