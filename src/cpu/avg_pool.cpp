// Average pooling and its gradient, with fixed or adaptive windows.
#include "kernels.hpp"
#include "pool.hpp"

namespace tensorlite::cpu::TL_CPU_NS {
namespace {

template <class T> T inverse_weight(const Span& h, const Span& w) {
  const std::int64_t weight = h.weight * w.weight;
  return weight > 0 ? static_cast<T>(1.0 / static_cast<double>(weight)) : T(0);
}

/// sums[c] += the rows' sum.
template <class T> void add_rows(T* sums, const T* const* rows, int count, std::int64_t channels) {
  std::int64_t c = 0;
  for (; c + Vec<T>::kSize <= channels; c += Vec<T>::kSize) {
    Vec<T> sum = Vec<T>::load(rows[0] + c);
    for (int i = 1; i < count; ++i) sum += Vec<T>::load(rows[i] + c);
    (Vec<T>::load(sums + c) + sum).store(sums + c);
  }
  for (; c < channels; ++c) {
    T sum = rows[0][c];
    for (int i = 1; i < count; ++i) sum += rows[i][c];
    sums[c] += sum;
  }
}

template <class T> void avg_pool_of(const View& out, const View& in, const PoolParams& params) {
  const PoolShape shape(in, out);
  const PixelRows<T> pixels(in);
  const Sink<T> sink(out);
  const std::int64_t block = pixels.block(shape.channels);
  for_each_window(shape, params, [&](std::int64_t image, const Span& h, const Span& w, std::int64_t at) {
    T buffer[std::is_same_v<T, float> ? kTaps * kChannelBlock : 1], result[kChannelBlock];  // halves only
    const T* rows[kTaps];
    const T scale = inverse_weight<T>(h, w);
    for (std::int64_t first = 0; first < shape.channels; first += block) {
      const std::int64_t channels = std::min(block, shape.channels - first), base = image * shape.pixels() * shape.channels + first;
      T* sums = sink.target(at + first, result);
      std::fill_n(sums, channels, T(0));
      for_each_taps(h, w, shape.w, [&](const std::int32_t* taps, int count) {
        pixels.get(rows, base, taps, count, shape.channels, channels, buffer);
        add_rows(sums, rows, count, channels);
      });
      for (std::int64_t c = 0; c < channels; ++c) sums[c] *= scale;
      sink.commit(at + first, result, channels);
    }
  });
}

template <class T> void avg_pool_backward_of(const View& grad_in, const View& grad_out, const PoolParams& params) {
  const PoolShape shape(grad_in, grad_out);
  const Source<T> source(grad_out);
  accumulate_windows<T>(shape, params, grad_in,
                        [&](const Span& h, const Span& w, std::int64_t at, std::int64_t channels, T* gradient, std::int64_t stride) {
                          T share[kChannelBlock];
                          const T scale = inverse_weight<T>(h, w);
                          for (std::int64_t first = 0; first < channels; first += kChannelBlock) {
                            const std::int64_t count = std::min(kChannelBlock, channels - first);
                            source.copy(share, at + first, 1, count);
                            for (std::int64_t c = 0; c < count; ++c) share[c] *= scale;
                            for_each_taps(h, w, shape.w, [&](const std::int32_t* taps, int taps_count) {
                              for (int i = 0; i < taps_count; ++i) {
                                T* to = gradient + first + taps[i] * stride;
                                for (std::int64_t c = 0; c < count; ++c) to[c] += share[c];
                              }
                            });
                          }
                        });
}

}  // namespace

void avg_pool2d(const Context&, const View& out, const View& in, PoolParams params) {
  if (out.numel() == 0) return;
  if (in.dtype == DType::float64) avg_pool_of<double>(out, in, params);
  else avg_pool_of<float>(out, in, params);
}

void avg_pool2d_backward(const Context&, const View& grad_in, const View& grad_out, PoolParams params) {
  if (grad_in.numel() == 0) return;
  if (grad_in.dtype == DType::float64) avg_pool_backward_of<double>(grad_in, grad_out, params);
  else avg_pool_backward_of<float>(grad_in, grad_out, params);
}

}  // namespace tensorlite::cpu::TL_CPU_NS
