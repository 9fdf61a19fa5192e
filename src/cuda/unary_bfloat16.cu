#include "unary.cuh"

namespace tensorlite::cuda {
TL_INSTANTIATE_UNARY(bfloat16)
}  // namespace tensorlite::cuda
