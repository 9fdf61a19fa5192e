#include "unary.cuh"

namespace tensorlite::cuda {
TL_INSTANTIATE_UNARY(float16)
}  // namespace tensorlite::cuda
