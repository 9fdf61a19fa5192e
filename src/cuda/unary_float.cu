#include "unary.cuh"

namespace tensorlite::cuda {
TL_INSTANTIATE_UNARY(float)
}  // namespace tensorlite::cuda
