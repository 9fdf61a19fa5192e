// Max pooling and its gradient. Padding never wins, a NaN does, and of equals the first.
#include "kernels.hpp"
#include "pool.hpp"

#include <tensorlite/elementwise.hpp>

#include <bit>
#include <limits>

namespace tensorlite::cpu::TL_CPU_NS {
namespace {

using elementwise::select;

/// A vector of channels. Indices travel in lanes as wide as T, as bits: selecting never looks at them.
template <class T> struct VecChannels {
  using V = Vec<T>;
  using Bits = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  static constexpr int kSize = V::kSize;
  static V load(const T* from) { return V::load(from); }
  static void store(V value, T* to) { value.store(to); }
  static V index(std::int32_t pixel) { return V(std::bit_cast<T>(static_cast<Bits>(pixel))); }
  static V load_index(const std::int32_t* from) {
    T lanes[kSize];
    for (int i = 0; i < kSize; ++i) lanes[i] = std::bit_cast<T>(static_cast<Bits>(from[i]));
    return V::load(lanes);
  }
  static void store_index(V index, std::int32_t* to) {
    T lanes[kSize];
    index.store(lanes);
    for (int i = 0; i < kSize; ++i) to[i] = static_cast<std::int32_t>(std::bit_cast<Bits>(lanes[i]));
  }
};
template <class T> struct OneChannel {
  static constexpr int kSize = 1;
  static T load(const T* from) { return *from; }
  static void store(T value, T* to) { *to = value; }
  static std::int32_t index(std::int32_t pixel) { return pixel; }
  static std::int32_t load_index(const std::int32_t* from) { return *from; }
  static void store_index(std::int32_t index, std::int32_t* to) { *to = index; }
};

/// Some taps of a window, and whether winners of earlier ones stand in best and indices.
template <class T> struct Taps {
  const T* const* rows;
  const std::int32_t* pixels;
  int count;
  bool has_earlier;
};

template <class Channels, class T> void win(const Taps<T>& taps, std::int64_t c, T* best, std::int32_t* indices) {
  auto value = Channels::load(taps.has_earlier ? best + c : taps.rows[0] + c);
  auto index = taps.has_earlier && indices ? Channels::load_index(indices + c) : Channels::index(taps.pixels[0]);
  for (int i = taps.has_earlier ? 0 : 1; i < taps.count; ++i) {
    const auto x = Channels::load(taps.rows[i] + c);
    const auto better = (!(x <= value)) & (value == value);
    value = select(better, x, value);
    index = select(better, Channels::index(taps.pixels[i]), index);
  }
  Channels::store(value, best + c);
  if (indices) Channels::store_index(index, indices + c);
}

template <class T> void win_all(const Taps<T>& taps, std::int64_t channels, T* best, std::int32_t* indices) {
  std::int64_t c = 0;
  for (; c + Vec<T>::kSize <= channels; c += Vec<T>::kSize) win<VecChannels<T>>(taps, c, best, indices);
  for (; c < channels; ++c) win<OneChannel<T>>(taps, c, best, indices);
}

template <class T> void max_pool_of(const View& out, const View& indices, const View& in, const PoolParams& params) {
  const PoolShape shape(in, out);
  const PixelRows<T> pixels(in);
  const Sink<T> sink(out);
  const std::int64_t block = pixels.block(shape.channels);
  for_each_window(shape, params, [&](std::int64_t image, const Span& h, const Span& w, std::int64_t at) {
    T buffer[std::is_same_v<T, float> ? kTaps * kChannelBlock : 1], result[kChannelBlock];  // halves only
    const T* rows[kTaps];
    for (std::int64_t first = 0; first < shape.channels; first += block) {
      const std::int64_t channels = std::min(block, shape.channels - first), base = image * shape.pixels() * shape.channels + first;
      T* best = sink.target(at + first, result);
      std::int32_t* index = indices ? indices.ptr<std::int32_t>() + at + first : nullptr;
      if (h.count * w.count == 0) {  // nothing but padding
        std::fill_n(best, channels, -std::numeric_limits<T>::infinity());
        if (index) std::fill_n(index, channels, -1);
      }
      bool has_earlier = false;
      for_each_taps(h, w, shape.w, [&](const std::int32_t* taps, int count) {
        pixels.get(rows, base, taps, count, shape.channels, channels, buffer);
        win_all(Taps<T>{rows, taps, count, has_earlier}, channels, best, index);
        has_earlier = true;
      });
      sink.commit(at + first, result, channels);
    }
  });
}

/// Adds the gradient of one output pixel to the winners. Few taps: tap by tap, where the compare widens to vectors.
template <class T>
void scatter(T* gradient, std::int64_t stride, const T* g, const std::int32_t* index, std::int64_t channels, const Span& h, const Span& w,
             std::int64_t width) {
  if (channels < 8 || h.count * w.count > 16) {
    for (std::int64_t c = 0; c < channels; ++c)
      if (index[c] >= 0) gradient[index[c] * stride + c] += g[c];
    return;
  }
  for_each_taps(h, w, width, [&](const std::int32_t* taps, int count) {
    for (int i = 0; i < count; ++i) {
      T* to = gradient + taps[i] * stride;
      for (std::int64_t c = 0; c < channels; ++c) to[c] += index[c] == taps[i] ? g[c] : T(0);
    }
  });
}

template <class T> void max_pool_backward_of(const View& grad_in, const View& grad_out, const View& indices, const PoolParams& params) {
  const PoolShape shape(grad_in, grad_out);
  const Source<T> source(grad_out);
  accumulate_windows<T>(shape, params, grad_in,
                        [&](const Span& h, const Span& w, std::int64_t at, std::int64_t channels, T* gradient, std::int64_t stride) {
                          T buffer[kChannelBlock];
                          const std::int64_t block = source.is_direct() ? channels : kChannelBlock;
                          for (std::int64_t first = 0; first < channels; first += block) {
                            const std::int64_t count = std::min(block, channels - first);
                            scatter(gradient + first, stride, source.run(at + first, count, buffer),
                                    indices.ptr<std::int32_t>() + at + first, count, h, w, shape.w);
                          }
                        });
}

}  // namespace

void max_pool2d(const Context&, const View& out, const View& indices, const View& in, PoolParams params) {
  if (out.numel() == 0) return;
  if (in.dtype == DType::float64) max_pool_of<double>(out, indices, in, params);
  else max_pool_of<float>(out, indices, in, params);
}

void max_pool2d_backward(const Context&, const View& grad_in, const View& grad_out, const View& indices, PoolParams params) {
  if (grad_in.numel() == 0) return;
  if (grad_in.dtype == DType::float64) max_pool_backward_of<double>(grad_in, grad_out, indices, params);
  else max_pool_backward_of<float>(grad_in, grad_out, indices, params);
}

}  // namespace tensorlite::cpu::TL_CPU_NS
