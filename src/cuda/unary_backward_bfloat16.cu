#include "unary.cuh"

namespace tensorlite::cuda {
TL_INSTANTIATE_UNARY_BACKWARD(bfloat16)
}  // namespace tensorlite::cuda
