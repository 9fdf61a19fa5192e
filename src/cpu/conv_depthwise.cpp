#include "conv_depthwise.hpp"

#include "gemm_epilogue.hpp"
#include "parallel.hpp"

#include <vector>

namespace tensorlite::cpu::TL_CPU_NS {
namespace {

using namespace Eigen::internal;

constexpr std::int64_t kRegionBytes = 128 << 10;
constexpr std::int64_t kChunks = 32;  // of the weight gradient's positions; the order of its sums depends on it
constexpr int kPixels = 4;            // outputs side by side share a load of the weights
constexpr int kTaps = 4;              // weights side by side share a load of the gradient

/// f(c, V{}) for the channels [0, count): packets first, the rest one by one.
template <class T, class F> void for_channels(std::int64_t count, F&& f) {
  std::int64_t c = 0;
  for (; c + kLanes<T> <= count; c += kLanes<T>) f(c, Packet<T>{});
  for (; c < count; ++c) f(c, T{});
}

/// Element offsets of all taps in a region.
template <class T> std::vector<std::int64_t> tap_offsets(const ConvAxis& h, const ConvAxis& w, const Region<T>& region) {
  std::vector<std::int64_t> offsets;
  for (std::int64_t y = 0; y < h.taps; ++y)
    for (std::int64_t x = 0; x < w.taps; ++x) offsets.push_back(y * h.tap_step * region.row_pitch + x * w.tap_step * region.pixel_pitch);
  return offsets;
}

struct TileSpan {
  std::int64_t image, y, rows, x, columns;
  TileSpan(const ConvTiling& t, const ConvAxis& h, const ConvAxis& w, std::int64_t index)
      : image(index / t.count()),
        y(index % t.count() / t.columns * t.tile_h),
        rows(std::min(t.tile_h, h.outputs - y)),
        x(index % t.columns * t.tile_w),
        columns(std::min(t.tile_w, w.outputs - x)) {}
};

template <class T> std::int64_t region_size(const ConvAxis& h, const ConvAxis& w, const ConvTiling& t, std::int64_t channels) {
  return round_up(h.extent(t.tile_h) * w.extent(t.tile_w) * channels, kLanes<T>);
}

/// Up to kPixels neighbouring outputs of one row: to[pixel * to_pitch + c].
template <class T> struct PixelRun {
  const T* from;
  std::int64_t step;  ///< from one output's first tap to the next's
  int count;
  T* to;
  std::int64_t to_pitch;
};

template <class T>
void add_taps(const PixelRun<T>& run, const std::vector<std::int64_t>& offsets, const T* weights, std::int64_t channels, const T* bias,
              bool relu) {
  const T* from[kPixels];
  for (int i = 0; i < kPixels; ++i) from[i] = run.from + std::min(i, run.count - 1) * run.step;
  for_channels<T>(channels, [&](std::int64_t c, auto vector) {
    using V = decltype(vector);
    V sum[kPixels];
    for (int i = 0; i < kPixels; ++i) sum[i] = pset1<V>(T(0));
    const T* w = weights + c;
    for (const std::int64_t offset : offsets) {
      const V weight = ploadu<V>(w);
      for (int i = 0; i < kPixels; ++i) sum[i] = pmadd(ploadu<V>(from[i] + offset + c), weight, sum[i]);
      w += channels;
    }
    for (int i = 0; i < run.count; ++i) {
      if (bias) sum[i] = padd(sum[i], ploadu<V>(bias + c));
      if (relu) sum[i] = pmax<Eigen::PropagateNaN>(sum[i], pset1<V>(T(0)));
      pstoreu(run.to + i * run.to_pitch + c, sum[i]);
    }
  });
}

/// One tile of one image, all channels.
template <class T, class In>
void depthwise_tile(const ConvProduct<In>& p, const TileSpan& tile, const T* weights, const T* bias, T* scratch, T* row) {
  const In* const image = p.images.data + tile.image * p.images.height * p.images.width * p.images.pitch;
  const Region<T> region = take_region(scratch, image, p.images, p.h, p.w, tile.y, tile.rows, tile.x, tile.columns, p.groups);
  const auto offsets = tap_offsets(p.h, p.w, region);
  const bool direct = std::is_same_v<T, In> && p.activation != Activation::gelu;
  const std::int64_t step = p.w.step * region.pixel_pitch;
  In* const out = p.out + tile.image * p.out_image_stride + tile.y * p.out_row_stride + tile.x * p.out_pixel_stride;
  for (std::int64_t y = 0; y < tile.rows; ++y)
    for (std::int64_t x = 0; x < tile.columns; x += kPixels) {
      In* const to = out + y * p.out_row_stride + x * p.out_pixel_stride;
      PixelRun<T> run{region.data + y * p.h.step * region.row_pitch + x * step, step,
                      static_cast<int>(std::min<std::int64_t>(kPixels, tile.columns - x)), row, p.groups};
      if constexpr (std::is_same_v<T, In>)
        if (direct) {
          run.to = to;
          run.to_pitch = p.out_pixel_stride;
        }
      add_taps(run, offsets, weights, p.groups, direct ? bias : nullptr, direct && p.activation == Activation::relu);
      if (!direct) finish_tile(row, p.groups, to, p.out_pixel_stride, run.count, p.groups, Epilogue<T>{bias, p.activation});
    }
}

/// sums[tap][channel] (+)= gradient * image over a tile, for kTaps taps from `first` on.
template <class T>
void sum_taps(const Region<T>& region, const DepthwiseGradient<T>& p, const TileSpan& tile, const T* gradient, std::int64_t gradient_row,
              const std::vector<std::int64_t>& offsets, std::size_t first, T* sums, bool accumulate) {
  const std::size_t count = std::min<std::size_t>(kTaps, offsets.size() - first);
  const std::int64_t step = p.w.step * region.pixel_pitch;
  for_channels<T>(p.groups, [&](std::int64_t c, auto vector) {
    using V = decltype(vector);
    V sum[kTaps];
    for (auto& s : sum) s = pset1<V>(T(0));
    for (std::int64_t y = 0; y < tile.rows; ++y) {
      const T* g = gradient + y * gradient_row + c;
      const T* from[kTaps];
      for (std::size_t i = 0; i < kTaps; ++i)
        from[i] = region.data + y * p.h.step * region.row_pitch + offsets[first + std::min(i, count - 1)] + c;
      for (std::int64_t x = 0; x < tile.columns; ++x, g += p.groups) {
        const V gv = ploadu<V>(g);
        for (int i = 0; i < kTaps; ++i) sum[i] = pmadd(gv, ploadu<V>(from[i] + x * step), sum[i]);
      }
    }
    for (std::size_t i = 0; i < count; ++i) {
      T* const to = sums + static_cast<std::int64_t>(first + i) * p.groups + c;
      pstoreu(to, accumulate ? padd(ploadu<V>(to), sum[i]) : sum[i]);
    }
  });
}

/// The bias gradient is that of a tap which always sees a one.
template <class T>
void sum_bias(const DepthwiseGradient<T>& p, const TileSpan& tile, const T* gradient, std::int64_t gradient_row, T* sums, bool accumulate) {
  for_channels<T>(p.groups, [&](std::int64_t c, auto vector) {
    using V = decltype(vector);
    V sum = pset1<V>(T(0));
    for (std::int64_t y = 0; y < tile.rows; ++y)
      for (std::int64_t x = 0; x < tile.columns; ++x) sum = padd(sum, ploadu<V>(gradient + y * gradient_row + x * p.groups + c));
    pstoreu(sums + c, accumulate ? padd(ploadu<V>(sums + c), sum) : sum);
  });
}

}  // namespace

template <class In> void conv_depthwise(const Context& context, const ConvProduct<In>& p, const GemmType<In>* bias) {
  using T = GemmType<In>;
  const std::int64_t taps = p.h.taps * p.w.taps, g = p.groups;
  const Workspace packed(context, sizeof(T) * static_cast<std::size_t>(taps * g));
  for (std::int64_t tap = 0; tap < taps; ++tap)
    for (std::int64_t c = 0; c < g; ++c)
      packed.data<T>()[tap * g + c] = static_cast<T>(
          p.weights.data[c * p.weights.group_stride + tap / p.w.taps * p.weights.y_stride + tap % p.w.taps * p.weights.x_stride]);
  const ConvTiling tiling =
      choose_tiling(p.h, p.w, g, kRegionBytes / static_cast<std::int64_t>(sizeof(T)), ceil_div(4 * num_threads(), p.batch));
  parallel_for(p.batch * tiling.count(), 1 + 65536 / (tiling.tile_h * tiling.tile_w * g * std::max<std::int64_t>(taps, 1)),
               [&](std::int64_t begin, std::int64_t end) {
                 const std::int64_t size = region_size<T>(p.h, p.w, tiling, g);
                 const Workspace scratch(context, sizeof(T) * static_cast<std::size_t>(size + kPixels * g));
                 for (std::int64_t i = begin; i < end; ++i)
                   depthwise_tile(p, TileSpan(tiling, p.h, p.w, i), packed.data<T>(), bias, scratch.data<T>(), scratch.data<T>() + size);
               });
}

template <class In> void depthwise_weight_gradient(const Context& context, const DepthwiseGradient<In>& p) {
  using T = GemmType<In>;
  const std::int64_t taps = p.h.taps * p.w.taps, g = p.groups, slice = (taps + 1) * g;
  const ConvTiling tiling = choose_tiling(p.h, p.w, g, kRegionBytes / static_cast<std::int64_t>(sizeof(T)), 1);
  const std::int64_t units = p.batch * tiling.count(), chunks = std::min(units, kChunks);
  const Workspace sums(context, sizeof(T) * static_cast<std::size_t>(chunks * slice));
  parallel_for(chunks, 1, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t size = region_size<T>(p.h, p.w, tiling, g);
    const Workspace scratch(context, sizeof(T) * static_cast<std::size_t>(size + tiling.tile_h * tiling.tile_w * g));
    for (std::int64_t chunk = begin; chunk < end; ++chunk)
      for (std::int64_t unit = part_begin(units, chunks, chunk); unit < part_begin(units, chunks, chunk + 1); ++unit) {
        const bool accumulate = unit > part_begin(units, chunks, chunk);
        const TileSpan tile(tiling, p.h, p.w, unit);
        const ConvImages<In> gradients{p.grad_out, p.h.outputs, p.w.outputs, g};
        const ConvAxis plain_h{p.h.outputs, p.h.outputs, 1}, plain_w{p.w.outputs, p.w.outputs, 1};
        const Region<T> gradient = take_region(scratch.data<T>() + size, p.grad_out + tile.image * p.h.outputs * p.w.outputs * g, gradients,
                                               plain_h, plain_w, tile.y, tile.rows, tile.x, tile.columns, g);
        const Region<T> region =
            take_region(scratch.data<T>(), p.images.data + tile.image * p.images.height * p.images.width * p.images.pitch, p.images, p.h,
                        p.w, tile.y, tile.rows, tile.x, tile.columns, g);
        const auto offsets = tap_offsets(p.h, p.w, region);
        const DepthwiseGradient<T> shape{p.batch, g, p.h, p.w, {}, nullptr, nullptr, nullptr};
        T* const to = sums.data<T>() + chunk * slice;
        for (std::size_t first = 0; first < offsets.size(); first += kTaps)
          sum_taps(region, shape, tile, gradient.data, gradient.row_pitch, offsets, first, to, accumulate);
        sum_bias(shape, tile, gradient.data, gradient.row_pitch, to + taps * g, accumulate);
      }
  });
  for (std::int64_t i = 0; i < (p.grad_bias ? slice : taps * g); ++i) {
    T total = sums.data<T>()[i];
    for (std::int64_t chunk = 1; chunk < chunks; ++chunk) total += sums.data<T>()[chunk * slice + i];
    (i < taps * g ? p.grad_weight[i % g * taps + i / g] : p.grad_bias[i - taps * g]) = static_cast<In>(total);
  }
}

#define TL_INSTANTIATE(In)                                                                            \
  template void conv_depthwise<In>(const Context&, const ConvProduct<In>&, const GemmType<In>* bias); \
  template void depthwise_weight_gradient<In>(const Context&, const DepthwiseGradient<In>&);
TL_INSTANTIATE(float)
TL_INSTANTIATE(double)
TL_INSTANTIATE(float16)
TL_INSTANTIATE(bfloat16)
#undef TL_INSTANTIATE

}  // namespace tensorlite::cpu::TL_CPU_NS
