#include "binary.cuh"

namespace tensorlite::cuda {
TL_BINARY_SIGNATURES(, bfloat16)
}  // namespace tensorlite::cuda
