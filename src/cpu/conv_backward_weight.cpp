#include "conv_region.hpp"
#include "dispatch.hpp"
#include "gemm_pack.hpp"
#include "kernels.hpp"
#include "parallel.hpp"

#include <vector>

namespace tensorlite::cpu::TL_CPU_NS {
namespace {

constexpr std::int64_t kMaxChunks = 32;               // partial sums, added in this order; depends on the shape alone
constexpr std::int64_t kMaxPartialBytes = 32 << 20;   // of all partial sums
constexpr std::int64_t kTilePositions = 320;          // output positions whose gradients stay in the first-level cache
constexpr std::int64_t kInPlaceRows = 4 * kTileRows;  // of the product: fewer do not repay a copy of the gradient
constexpr std::int64_t kRegionBytes = 256 << 10;

/// grad_weight as a product (taps * channels) x positions x output channels.
template <class In> struct WeightGradient {
  std::int64_t batch, groups, channels, outputs;  ///< channels and outputs per group
  ConvAxis h, w;
  ConvImages<In> images;
  const In* grad_out;
  In* grad_weight;

  std::int64_t rows() const { return h.taps * w.taps * channels; }
};

/// Sums a chunk of positions into partial sums [group][tap][channel][output channel padded to whole packets].
template <class T, class In> class WeightGradientTask {
 public:
  WeightGradientTask(const Context& context, const WeightGradient<In>& p, const ConvTiling& tiling)
      : p_(p),
        tiling_(tiling),
        pitch_(round_up(p.outputs, kLanes<T>)),
        region_size_(round_up(p.h.extent(tiling.tile_h) * p.w.extent(tiling.tile_w) * p.channels, kLanes<T>)),
        workspace_(context, sizeof(T) * static_cast<std::size_t>(region_size_ + tiling.tile_h * tiling.tile_w * pitch_)) {}

  void run(std::int64_t group, std::int64_t first_unit, std::int64_t last_unit, T* sums) {
    for (std::int64_t unit = first_unit; unit < last_unit; ++unit) {
      accumulate_ = unit > first_unit;
      add_tile(unit / tiling_.count(), group, unit % tiling_.count(), sums);
    }
  }

 private:
  /// The gradient of a tile's positions. Panel o starts at data + o * panel_step; skip: from the end of an output row to the next.
  struct Gradient {
    const T* data;
    std::int64_t panel_step, pixel_pitch, skip;
  };

  void add_tile(std::int64_t image, std::int64_t group, std::int64_t tile, T* sums) {
    const std::int64_t y0 = tile / tiling_.columns * tiling_.tile_h, x0 = tile % tiling_.columns * tiling_.tile_w;
    const std::int64_t rows = std::min(tiling_.tile_h, p_.h.outputs - y0), columns = std::min(tiling_.tile_w, p_.w.outputs - x0);
    const In* source = p_.images.data + image * p_.images.height * p_.images.width * p_.images.pitch + group * p_.channels;
    const Region<T> region = take_region(workspace_.template data<T>(), source, p_.images, p_.h, p_.w, y0, rows, x0, columns, p_.channels);
    const Gradient gradient = take_gradient(image, group, y0, rows, x0, columns);
    offsets_.clear();
    for (std::int64_t y = 0; y < rows; ++y) offsets_.push_back(y * p_.h.step * region.row_pitch);

    const bool merged = p_.w.tap_step == 1 && region.pixel_pitch == p_.channels;
    const std::int64_t taps = merged ? 1 : p_.w.taps, run = p_.channels * (merged ? p_.w.taps : 1);
    for (std::int64_t o = 0; o < p_.outputs; o += kTileColumns<T>)
      for (std::int64_t y = 0; y < p_.h.taps; ++y)
        for (std::int64_t x = 0; x < taps; ++x) {
          const T* a = region.data + y * p_.h.tap_step * region.row_pitch + x * p_.w.tap_step * region.pixel_pitch;
          add_run(a, p_.w.step * region.pixel_pitch, run, gradient, o, columns, sums + (y * taps + x) * run * pitch_);
        }
  }

  /// One run of (tap, channel) rows that are neighbours in memory against one panel of output channels.
  void add_run(const T* a, std::int64_t a_stride, std::int64_t run, const Gradient& gradient, std::int64_t o, std::int64_t columns,
               T* sums) {
    const int packets = pitch_ - o > kLanes<T> ? kTilePackets : 1;
    const std::int64_t pixel_pitch = gradient.pixel_pitch ? gradient.pixel_pitch : packets * kLanes<T>;
    const std::int64_t tiles = ceil_div(run, kTileRows);
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      const std::int64_t i = part_begin(run, tiles, tile), height = part_begin(run, tiles, tile + 1) - i;
      TileInput<T> in{a + i, a_stride, offsets_.data(), gradient.data + o * gradient.panel_step, pixel_pitch, columns};
      in.segments = static_cast<std::int64_t>(offsets_.size());
      in.b_skip = gradient.skip;
      tile_function<T>(AForm::k_major, static_cast<int>(height), packets)(in, {sums + i * pitch_ + o, pitch_, nullptr, accumulate_, false});
    }
  }

  Gradient take_gradient(std::int64_t image, std::int64_t group, std::int64_t y0, std::int64_t rows, std::int64_t x0,
                         std::int64_t columns) {
    const std::int64_t width = p_.w.outputs, pitch = p_.groups * p_.outputs;
    const In* from = p_.grad_out + ((image * p_.h.outputs + y0) * width + x0) * pitch + group * p_.outputs;
    if constexpr (std::is_same_v<T, In>)
      if (p_.outputs % kLanes<T> == 0 && (pitch <= kTileColumns<T> || p_.rows() <= kInPlaceRows))
        return {from, 1, pitch, (width - columns) * pitch};
    T* const copy = workspace_.template data<T>() + region_size_;
    const ColumnPanels<T> panels{p_.outputs};
    const std::int64_t positions = rows * columns;
    for (std::int64_t panel = 0; panel < panels.count; ++panel)
      for (std::int64_t y = 0; y < rows; ++y)
        pack_strip(copy + panels.begin(panel) * positions + y * columns * panels.pitch(panel), panels.pitch(panel),
                   Strip<In>{from + y * width * pitch + panels.begin(panel), panels.width(panel), 1, columns, pitch});
    return {copy, positions, 0, 0};
  }

  const WeightGradient<In>& p_;
  ConvTiling tiling_;
  std::int64_t pitch_, region_size_;
  Workspace workspace_;
  std::vector<std::int64_t> offsets_;
  bool accumulate_ = false;
};

/// grad_weight[g][o][row] = sum over chunks of sums[chunk][g][row][o].
template <class T, class In> void combine(const WeightGradient<In>& p, const T* sums, std::int64_t chunks) {
  const std::int64_t rows = p.rows(), pitch = round_up(p.outputs, kLanes<T>), chunk_size = p.groups * rows * pitch;
  parallel_for(p.groups * rows, std::max<std::int64_t>(1, 16384 / (pitch * chunks)), [&](std::int64_t begin, std::int64_t end) {
    std::vector<T> total(static_cast<std::size_t>(pitch));
    for (std::int64_t r = begin; r < end; ++r) {
      std::copy_n(sums + r * pitch, pitch, total.begin());
      for (std::int64_t chunk = 1; chunk < chunks; ++chunk) {
        const T* from = sums + chunk * chunk_size + r * pitch;
        for (std::int64_t o = 0; o < pitch; ++o) total[static_cast<std::size_t>(o)] += from[o];
      }
      In* to = p.grad_weight + r / rows * p.outputs * rows + r % rows;
      for (std::int64_t o = 0; o < p.outputs; ++o) to[o * rows] = static_cast<In>(total[static_cast<std::size_t>(o)]);
    }
  });
}

template <class In> void weight_gradient(const Context& context, const WeightGradient<In>& p) {
  using T = GemmType<In>;
  const std::int64_t positions = p.h.outputs * p.w.outputs, size = p.groups * p.rows() * round_up(p.outputs, kLanes<T>);
  if (p.batch * positions == 0) {
    std::fill_n(p.grad_weight, p.groups * p.rows() * p.outputs, In(0.0f));
    return;
  }
  if (size == 0) return;
  const ConvTiling tiling =
      choose_tiling(p.h, p.w, p.channels, kRegionBytes / static_cast<std::int64_t>(sizeof(T)), ceil_div(positions, kTilePositions));
  const std::int64_t units = p.batch * tiling.count();
  const std::int64_t affordable = std::max<std::int64_t>(1, kMaxPartialBytes / (size * static_cast<std::int64_t>(sizeof(T))));
  const std::int64_t chunks = std::min({units, kMaxChunks, affordable});
  const Workspace sums(context, sizeof(T) * static_cast<std::size_t>(chunks * size));
  parallel_for(chunks * p.groups, 1, [&](std::int64_t begin, std::int64_t end) {
    WeightGradientTask<T, In> task(context, p, tiling);
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t chunk = i / p.groups, group = i % p.groups;
      task.run(group, part_begin(units, chunks, chunk), part_begin(units, chunks, chunk + 1),
               sums.data<T>() + chunk * size + group * (size / p.groups));
    }
  });
  combine(p, sums.data<T>(), chunks);
}

/// Column sums of [rows, columns]: blocks of fixed size in T, their sums in double, in order.
template <class In> void bias_gradient(const Context& context, const In* grad_out, std::int64_t rows, std::int64_t columns, In* grad_bias) {
  using T = GemmType<In>;
  constexpr std::int64_t block_rows = 256;
  const std::int64_t blocks = ceil_div(rows, block_rows);
  const Workspace sums(context, sizeof(T) * static_cast<std::size_t>(blocks * columns));
  parallel_for(blocks, 1 + 65536 / std::max<std::int64_t>(1, block_rows * columns), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      T* sum = sums.data<T>() + block * columns;
      std::fill_n(sum, columns, T(0));
      for (std::int64_t r = block * block_rows; r < std::min(rows, (block + 1) * block_rows); ++r)
        for (std::int64_t j = 0; j < columns; ++j) sum[j] += static_cast<T>(grad_out[r * columns + j]);
    }
  });
  for (std::int64_t j = 0; j < columns; ++j) {
    double total = 0;
    for (std::int64_t block = 0; block < blocks; ++block) total += static_cast<double>(sums.data<T>()[block * columns + j]);
    grad_bias[j] = static_cast<In>(static_cast<T>(total));
  }
}

}  // namespace

void conv2d_backward_weight(const Context& context, const View& grad_weight, const View& grad_bias, const View& grad_out, const View& in,
                            ConvParams params) {
  dispatch_floating(context.op, grad_weight.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const std::int64_t oh = grad_out.size(1), ow = grad_out.size(2), o = grad_out.size(3);
    const WeightGradient<T> p{in.size(0),
                              params.groups,
                              grad_weight.size(3),
                              o / params.groups,
                              forward_axis(params, 0, in.size(1), oh, grad_weight.size(1)),
                              forward_axis(params, 1, in.size(2), ow, grad_weight.size(2)),
                              {in.ptr<const T>(), in.size(1), in.size(2), in.size(3)},
                              grad_out.ptr<const T>(),
                              grad_weight.ptr<T>()};
    weight_gradient(context, p);
    if (grad_bias) bias_gradient(context, grad_out.ptr<const T>(), in.size(0) * oh * ow, o, grad_bias.ptr<T>());
  });
}

}  // namespace tensorlite::cpu::TL_CPU_NS
