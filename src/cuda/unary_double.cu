#include "unary.cuh"

namespace tensorlite::cuda {
TL_INSTANTIATE_UNARY(double)
}  // namespace tensorlite::cuda
