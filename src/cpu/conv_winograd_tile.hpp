// The 6x6 tiles that the Winograd convolutions and their weight gradients have in common.
#pragma once

#include "gemm_kernel.hpp"

namespace tensorlite::cpu::TL_CPU_NS::winograd {

using namespace Eigen::internal;
using P = Packet<float>;

inline constexpr int kIn = 6, kPoints = kIn * kIn;
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
/// A polynomial of N coefficients (a row of the kernel, or of the gradient in its place) at the six points, times the image transform's
/// scale.
template <int N> EIGEN_ALWAYS_INLINE void evaluate(const P* x, int xs, P* y, int ys) {
  static_assert(N >= 2 && N <= 5);
  P even = x[0], odd = x[xs], even2 = even, odd2 = odd;
  if constexpr (N > 2) even = padd(even, x[2 * xs]), even2 = times(4, x[2 * xs], even2);
  if constexpr (N > 3) odd = padd(odd, x[3 * xs]), odd2 = times(4, x[3 * xs], odd2);
  if constexpr (N > 4) even = padd(even, x[4 * xs]), even2 = times(16, x[4 * xs], even2);
  const P sixth = pset1<P>(-1.0f / 6), part = pset1<P>(1.0f / 24);
  y[0] = pmul(pset1<P>(0.25f), x[0]);
  y[ys] = pmul(sixth, padd(even, odd));
  y[2 * ys] = pmul(sixth, psub(even, odd));
  y[3 * ys] = pmul(part, times(2, odd2, even2));
  y[4 * ys] = pmul(part, times(-2, odd2, even2));
  y[5 * ys] = x[(N - 1) * xs];
}
/// Back from the products at the six points to N results.
template <int N> EIGEN_ALWAYS_INLINE void collapse(const P* x, int xs, P* y, int ys) {
  const P s1 = padd(x[xs], x[2 * xs]), d1 = psub(x[xs], x[2 * xs]), s2 = padd(x[3 * xs], x[4 * xs]), d2 = psub(x[3 * xs], x[4 * xs]);
  y[0] = padd(padd(x[0], s1), s2);
  for (int i = 1; i < N; ++i) {
    const P sum = i % 2 ? times(static_cast<float>(1 << i), d2, d1) : times(static_cast<float>(1 << i), s2, s1);
    y[i * ys] = i == N - 1 ? padd(sum, x[5 * xs]) : sum;
  }
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
