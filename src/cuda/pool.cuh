// What the pooling kernels share: the sizes of dense NHWC images and where one of their elements stands.
#pragma once

#include "launch.cuh"
#include "numeric.cuh"

namespace tensorlite::cuda {

/// Sizes of the larger image and of the pooled one.
struct PoolShape {
  std::int64_t n = 0, h = 0, w = 0, c = 0, oh = 0, ow = 0;
  PoolParams params;
};
inline PoolShape shape_of(const View& image, const View& pooled, const PoolParams& params) {
  return {image.size(0), image.size(1), image.size(2), image.size(3), pooled.size(1), pooled.size(2), params};
}

struct Place {
  std::int64_t n, y, x, c;
};
/// Where element `i` of a dense [n, h, w, c] stands. 32-bit divisions where they suffice.
__device__ inline Place place_of(std::int64_t i, std::int64_t h, std::int64_t w, std::int64_t c) {
  if (i < (std::int64_t(1) << 31)) {
    std::uint32_t rest = static_cast<std::uint32_t>(i);
    const std::uint32_t pixel = rest / static_cast<std::uint32_t>(c), row = pixel / static_cast<std::uint32_t>(w),
                        image = row / static_cast<std::uint32_t>(h);
    return {image, row - image * h, pixel - row * w, rest - pixel * c};
  }
  const std::int64_t pixel = i / c, row = pixel / w, image = row / h;
  return {image, row - image * h, pixel - row * w, i - pixel * c};
}

}  // namespace tensorlite::cuda
