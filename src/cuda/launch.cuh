// Launching kernels: a grid-stride loop over an index, grids that stay within the device's limits.
#pragma once

#include "common.hpp"

#include <algorithm>

namespace tensorlite::cuda {

inline constexpr int kThreads = 256;

/// Blocks for `count` items of which one block takes `per_block`; kernels loop over what is left beyond 2^20 blocks.
inline unsigned blocks_for(std::int64_t count, std::int64_t per_block) {
  return static_cast<unsigned>(std::clamp<std::int64_t>((count + per_block - 1) / per_block, 1, 1 << 20));
}

template <class F> __global__ void __launch_bounds__(kThreads) index_kernel(std::int64_t count, const F f) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += step) f(i);
}

/// Runs f(i) for every i in [0, count), one thread each.
template <class F> void for_each_index(const Context& context, std::int64_t count, const F& f) {
  if (count <= 0) return;
  index_kernel<<<blocks_for(count, kThreads), kThreads, 0, stream_of(context)>>>(count, f);
  check_launch(context);
}

/// Lets `kernel` use `bytes` of dynamic shared memory when that is above the default of 48 KiB.
template <class Kernel> void allow_shared_memory(const Context& context, Kernel* kernel, std::size_t bytes) {
  if (bytes <= (48u << 10)) return;
  check(context.op, "raising the shared memory limit",
        cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
}

}  // namespace tensorlite::cuda
