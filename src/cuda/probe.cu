// Which compute capabilities this library was compiled for, and whether the current device is served by one.
#include "state.hpp"

namespace tensorlite::cuda {
namespace {
__global__ void probe_kernel() {}
constexpr int kCompiled[] = {__CUDA_ARCH_LIST__};
}  // namespace

const int* compiled_capabilities() {
  constexpr int count = sizeof(kCompiled) / sizeof(int);
  static int capabilities[count + 1] = {};
  for (int i = 0; i < count; ++i) capabilities[i] = kCompiled[i] / 10;
  return capabilities;
}

cudaError_t probe_kernel_image() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, probe_kernel);
}

}  // namespace tensorlite::cuda
