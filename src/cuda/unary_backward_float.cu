#include "unary.cuh"

namespace tensorlite::cuda {
TL_INSTANTIATE_UNARY_BACKWARD(float)
}  // namespace tensorlite::cuda
