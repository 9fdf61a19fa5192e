#include "unary.cuh"

namespace tensorlite::cuda {
TL_INSTANTIATE_UNARY_BACKWARD(float16)
}  // namespace tensorlite::cuda
