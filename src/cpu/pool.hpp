// Windows of pooling over NHWC images: which input pixels an output pixel sees, as rows of channels.
#pragma once

#include "runs.hpp"
#include "vec.hpp"
#include "parallel.hpp"

#include <tensorlite/backend.hpp>

#include <algorithm>
#include <vector>

namespace tensorlite::cpu::TL_CPU_NS {

inline constexpr std::int64_t kTaps = 64;           ///< pixels of a window looked at together
inline constexpr std::int64_t kChannelBlock = 128;  ///< channels converted together when the dtype is a half type

/// `count` pixels along one axis inside the image, from `first`, `step` apart; `weight` is what an average divides by.
struct Span {
  std::int64_t first = 0, count = 0, step = 1, weight = 0;
};

/// Axis 0 is h, 1 is w.
inline Span window_span(const PoolParams& p, int axis, std::int64_t out_index, std::int64_t out_size, std::int64_t size) {
  if (p.adaptive) {
    const std::int64_t first = out_index * size / out_size, end = ((out_index + 1) * size + out_size - 1) / out_size;
    return {first, end - first, 1, end - first};
  }
  const std::int64_t step = p.dilation[axis], start = out_index * p.stride[axis] - p.padding[2 * axis];
  const std::int64_t skipped = start < 0 ? (-start + step - 1) / step : 0;
  const std::int64_t inside = start < size ? (size - start + step - 1) / step : 0;
  const std::int64_t count = std::max<std::int64_t>(0, std::min(p.kernel[axis], inside) - skipped);
  const std::int64_t padded_end = std::min(start + p.kernel[axis], size + p.padding[2 * axis + 1]);
  return {start + skipped * step, count, step, p.count_include_pad ? padded_end - start : count};
}

/// Those of every output along the axis: taken once, they cost divisions.
inline std::vector<Span> window_spans(const PoolParams& p, int axis, std::int64_t out_size, std::int64_t size) {
  std::vector<Span> spans;
  for (std::int64_t i = 0; i < out_size; ++i) spans.push_back(window_span(p, axis, i, out_size, size));
  return spans;
}

/// f(pixels, count) with the pixels (h * width + w) of a window in row-major order, at most kTaps at a time.
template <class F> void for_each_taps(const Span& h, const Span& w, std::int64_t width, F&& f) {
  std::int32_t pixels[kTaps];
  int count = 0;
  for (std::int64_t i = 0; i < h.count; ++i)
    for (std::int64_t j = 0; j < w.count; ++j) {
      pixels[count++] = static_cast<std::int32_t>((h.first + i * h.step) * width + w.first + j * w.step);
      if (count == kTaps) f(pixels, count), count = 0;
    }
  if (count > 0) f(pixels, count);
}

/// Sizes of a pooling call; `large` is the side with H x W pixels, `small` the pooled one.
struct PoolShape {
  std::int64_t images, h, w, out_h, out_w, channels;
  PoolShape(const View& large, const View& small)
      : images(large.size(0)), h(large.size(1)), w(large.size(2)), out_h(small.size(1)), out_w(small.size(2)), channels(large.size(3)) {}
  std::int64_t pixels() const { return h * w; }
  std::int64_t out_pixels() const { return out_h * out_w; }
};

/// f(image, h span, w span, element offset of the output pixel) for every output pixel, in parallel.
template <class F> void for_each_window(const PoolShape& s, const PoolParams& p, F&& f) {
  const std::int64_t cost =
      s.out_w * s.channels * (p.adaptive ? s.pixels() / std::max<std::int64_t>(1, s.out_pixels()) + 1 : p.kernel[0] * p.kernel[1]);
  const std::vector<Span> h = window_spans(p, 0, s.out_h, s.h), w = window_spans(p, 1, s.out_w, s.w);
  parallel_for(s.images * s.out_h, std::max<std::int64_t>(1, 32768 / std::max<std::int64_t>(1, cost)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t row = begin; row < end; ++row)
                   for (std::int64_t ow = 0; ow < s.out_w; ++ow)
                     f(row / s.out_h, h[row % s.out_h], w[ow], (row * s.out_w + ow) * s.channels);
               });
}

/// Rows of channels [first, first + count) of pixels of one image, as T.
template <class T> class PixelRows {
 public:
  explicit PixelRows(const View& view) : source_(view) {}
  std::int64_t block(std::int64_t channels) const { return source_.is_direct() ? channels : std::min(channels, kChannelBlock); }
  /// rows[i]: valid until the next call.
  void get(const T** rows, std::int64_t base, const std::int32_t* pixels, int count, std::int64_t stride, std::int64_t channels,
           T* buffer) const {
    for (int i = 0; i < count; ++i) rows[i] = source_.run(base + pixels[i] * stride, channels, buffer + i * kChannelBlock);
  }
  std::size_t buffer_size() const { return source_.is_direct() ? 0 : static_cast<std::size_t>(kTaps * kChannelBlock); }

 private:
  Source<T> source_;
};

/// Backward passes add windows into the image one after the other, so one image (or a block of its channels, when images are few) is one
/// thread's. f(h span, w span, element offset of the output pixel, channels, gradient, stride) adds to gradient[pixel * stride + c].
template <class T, class F> void accumulate_windows(const PoolShape& s, const PoolParams& p, const View& grad_in, F&& f) {
  const Sink<T> sink(grad_in);
  const std::int64_t threads = num_threads(),
                     parts = s.images >= threads ? 1 : std::max<std::int64_t>(1, std::min(threads, s.channels / 16));
  const std::int64_t cost = s.pixels() * s.channels / parts * 4;
  const std::vector<Span> h = window_spans(p, 0, s.out_h, s.h), w = window_spans(p, 1, s.out_w, s.w);
  parallel_for(s.images * parts, std::max<std::int64_t>(1, 32768 / std::max<std::int64_t>(1, cost)),
               [&](std::int64_t begin, std::int64_t end) {
                 std::vector<T> buffer;
                 for (std::int64_t item = begin; item < end; ++item) {
                   const std::int64_t image = item / parts, part = item % parts, first = s.channels * part / parts,
                                      last = s.channels * (part + 1) / parts;
                   const std::int64_t width = last - first, base = image * s.pixels() * s.channels + first,
                                      stride = sink.is_direct() ? s.channels : width;
                   if (!sink.is_direct()) buffer.resize(static_cast<std::size_t>(s.pixels() * width));
                   T* gradient = sink.target(base, buffer.data());
                   for (std::int64_t i = 0; i < s.pixels(); ++i) std::fill_n(gradient + i * stride, width, T(0));
                   for (std::int64_t i = 0; i < s.out_pixels(); ++i)
                     f(h[i / s.out_w], w[i % s.out_w], (image * s.out_pixels() + i) * s.channels + first, width, gradient, stride);
                   if (sink.is_direct()) continue;
                   for (std::int64_t i = 0; i < s.pixels(); ++i) sink.store(base + i * s.channels, 1, gradient + i * width, width);
                 }
               });
}

}  // namespace tensorlite::cpu::TL_CPU_NS
