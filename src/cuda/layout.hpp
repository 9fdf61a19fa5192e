// Strided operands of one elementwise kernel: axes merged and ordered so that the output is written in sequence.
#pragma once

#include "common.hpp"

#include <algorithm>
#include <cstdlib>

namespace tensorlite::cuda {

/// Division of numbers below 2^31 by an invariant, as a multiplication and a shift.
struct Divider {
  std::uint32_t divisor = 1, magic = 1, shift = 0;
  Divider() = default;
  explicit Divider(std::uint32_t d) : divisor(d) {
    while ((std::uint64_t(1) << shift) < d) ++shift;
    magic = static_cast<std::uint32_t>(((std::uint64_t(1) << 32) * ((std::uint64_t(1) << shift) - d)) / d + 1);
  }
  TL_HOST_DEVICE std::uint32_t quotient(std::uint32_t n) const {
#if defined(__CUDA_ARCH__)
    return (__umulhi(n, magic) + n) >> shift;
#else
    return static_cast<std::uint32_t>((((std::uint64_t(n) * magic) >> 32) + n) >> shift);
#endif
  }
};

/// Merged axes of N operands (operand 0 is the output), innermost first.
template <int N> struct Axes {
  int count = 0;
  std::int64_t size[kMaxDims] = {};
  std::int64_t stride[kMaxDims][N] = {};

  std::int64_t numel() const {
    std::int64_t n = 1;
    for (int i = 0; i < count; ++i) n *= size[i];
    return n;
  }
  void swap(int i, int j) {
    std::swap(size[i], size[j]);
    for (int k = 0; k < N; ++k) std::swap(stride[i][k], stride[j][k]);
  }
};

/// Drops axes of size 1, orders the rest by the output's strides and merges neighbours that all operands walk as one.
template <int N> Axes<N> merge_axes(const Dims& sizes, const Dims* const (&strides)[N]) {
  Axes<N> axes;
  for (int i = sizes.size() - 1; i >= 0; --i) {
    if (sizes[i] == 1) continue;
    axes.size[axes.count] = sizes[i];
    for (int k = 0; k < N; ++k) axes.stride[axes.count][k] = (*strides[k])[i];
    ++axes.count;
  }
  const auto before = [&](int i, int j) {  // axis i belongs inside axis j
    for (int k = 0; k < N; ++k) {
      const std::int64_t a = std::abs(axes.stride[i][k]), b = std::abs(axes.stride[j][k]);
      if (a != b) return a != 0 && (b == 0 || a < b);
    }
    return false;
  };
  for (int i = 1; i < axes.count; ++i)
    for (int j = i; j > 0 && before(j, j - 1); --j) axes.swap(j, j - 1);
  int last = 0;
  for (int i = 1; i < axes.count; ++i) {
    bool joined = true;
    for (int k = 0; k < N; ++k) joined = joined && axes.stride[i][k] == axes.stride[last][k] * axes.size[last];
    if (joined) {
      axes.size[last] *= axes.size[i];
    } else if (++last != i) {
      axes.swap(last, i);
    }
  }
  if (axes.count > 0) axes.count = last + 1;
  return axes;
}

/// What a kernel needs to turn a pack's number into the operands' offsets.
template <int N> struct Layout {
  std::uint32_t packs = 0;  ///< below 2^31 unless `wide`
  int count = 0;
  bool wide = false;  ///< numbers of packs do not fit 31 bits: offsets_wide()
  Divider size[kMaxDims];
  std::int64_t extent[kMaxDims] = {};
  std::int64_t stride[kMaxDims][N] = {};  ///< of axis 0: for one pack
  bool broadcast[N] = {};                 ///< the operand does not move along axis 0

  TL_HOST_DEVICE void offsets(std::uint32_t pack, std::int64_t (&offset)[N]) const {
    if (count <= 1) {  // the most frequent layout: everything is contiguous
      for (int k = 0; k < N; ++k) offset[k] = pack * stride[0][k];
      return;
    }
    for (int k = 0; k < N; ++k) offset[k] = 0;
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (int i = 0; i < kMaxDims; ++i) {
      if (i >= count) break;
      const std::uint32_t next = i + 1 < count ? size[i].quotient(pack) : 0;
      const std::uint32_t at = pack - next * size[i].divisor;
      for (int k = 0; k < N; ++k) offset[k] += at * stride[i][k];
      pack = next;
    }
  }
  TL_HOST_DEVICE void offsets_wide(std::int64_t pack, std::int64_t (&offset)[N]) const {
    for (int k = 0; k < N; ++k) offset[k] = 0;
    for (int i = 0; i < count; ++i) {
      const std::int64_t next = i + 1 < count ? pack / extent[i] : 0, at = pack - next * extent[i];
      for (int k = 0; k < N; ++k) offset[k] += at * stride[i][k];
      pack = next;
    }
  }
  /// Of operand K of any pack.
  template <int K> TL_HOST_DEVICE std::int64_t offset_of(std::int64_t pack) const {
    std::int64_t offset[N];
    if (wide) offsets_wide(pack, offset);
    else offsets(static_cast<std::uint32_t>(pack), offset);
    return offset[K];
  }
};

/// The layout of `axes` with packs of `width` elements along axis 0.
template <int N> Layout<N> make_layout(const Axes<N>& axes, int width) {
  Layout<N> layout;
  constexpr std::int64_t kNarrow = std::int64_t(1) << 31;
  layout.packs = static_cast<std::uint32_t>(axes.numel() / width);
  layout.count = axes.count;
  layout.wide = axes.numel() / width >= kNarrow;
  for (int i = 0; i < axes.count; ++i) {
    layout.extent[i] = i == 0 ? axes.size[i] / width : axes.size[i];
    if (layout.extent[i] > 0 && layout.extent[i] < kNarrow) layout.size[i] = Divider(static_cast<std::uint32_t>(layout.extent[i]));
    for (int k = 0; k < N; ++k) layout.stride[i][k] = axes.stride[i][k] * (i == 0 ? width : 1);
  }
  for (int k = 0; k < N; ++k) layout.broadcast[k] = axes.count > 0 && axes.stride[0][k] == 0;
  return layout;
}

/// Whether every operand can be read in aligned packs of `width` along axis 0. A null pointer is a scalar and always can.
template <int N> bool packs_fit(const Axes<N>& axes, int width, void* const (&data)[N], const std::size_t (&bytes)[N]) {
  if (width == 1 || axes.count == 0 || axes.size[0] % width != 0 || axes.stride[0][0] != 1) return false;
  for (int k = 0; k < N; ++k) {
    if (!data[k] || axes.stride[0][k] == 0) continue;
    if (axes.stride[0][k] != 1 || reinterpret_cast<std::uintptr_t>(data[k]) % (bytes[k] * static_cast<std::size_t>(width)) != 0)
      return false;
    for (int i = 1; i < axes.count; ++i)
      if (axes.stride[i][k] % width != 0) return false;
  }
  return true;
}

}  // namespace tensorlite::cuda
