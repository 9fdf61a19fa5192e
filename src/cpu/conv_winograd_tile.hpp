// The 6x6 tiles that the Winograd convolution and its weight gradient have in common.
#pragma once

#include "gemm_kernel.hpp"

namespace tensorlite::cpu::TL_CPU_NS::winograd {

using namespace Eigen::internal;
using P = Packet<float>;

inline constexpr int kIn = 6, kOut = 4, kPoints = kIn * kIn;
inline constexpr int kL = kLanes<float>;

EIGEN_ALWAYS_INLINE P times(float factor, P x, P plus) { return pmadd(pset1<P>(factor), x, plus); }

// The one-dimensional transforms for the points 0, 1, -1, 2, -2 and infinity; x and y are `xs` and `ys` packets apart.
EIGEN_ALWAYS_INLINE void transform_image(const P* x, int xs, P* y, int ys) {
  const P a = times(-4, x[2 * xs], x[4 * xs]), b = times(-4, x[xs], x[3 * xs]);
  const P c = psub(x[4 * xs], x[2 * xs]), d = psub(x[3 * xs], x[xs]);
  y[0] = times(4, psub(x[0], x[2 * xs]), psub(x[4 * xs], x[2 * xs]));
  y[ys] = padd(a, b);
  y[2 * ys] = psub(a, b);
  y[3 * ys] = times(2, d, c);
  y[4 * ys] = times(-2, d, c);
  y[5 * ys] = times(4, psub(x[xs], x[3 * xs]), psub(x[5 * xs], x[3 * xs]));
}
/// Elements from one point to the next: an odd number of cache lines, so that a tile's 36 values fall into different cache sets.
inline std::int64_t point_pitch(std::int64_t elements) { return (ceil_div(elements, 16) | 1) * 16; }

/// The transform of the 6x6 pixels at `from`: point i of channel c at to[i * point_pitch + c].
inline void image_tile(const float* from, std::int64_t row_pitch, std::int64_t pixel_pitch, std::int64_t channels, float* to,
                       std::int64_t pitch) {
  for (std::int64_t c = 0; c < channels; c += kL) {
    P in[kPoints], half[kPoints];
    for (int y = 0; y < kIn; ++y)
      for (int x = 0; x < kIn; ++x) in[y * kIn + x] = ploadu<P>(from + y * row_pitch + x * pixel_pitch + c);
    for (int x = 0; x < kIn; ++x) transform_image(in + x, kIn, half + x, kIn);
    for (int y = 0; y < kIn; ++y) {
      P out[kIn];
      transform_image(half + y * kIn, 1, out, 1);
      for (int x = 0; x < kIn; ++x) pstoreu(to + (y * kIn + x) * pitch + c, out[x]);
    }
  }
}

}  // namespace tensorlite::cpu::TL_CPU_NS::winograd
