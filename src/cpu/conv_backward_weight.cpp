#include "conv_depthwise.hpp"
#include "conv_winograd.hpp"
#include "dispatch.hpp"
#include "gemm_pack.hpp"
#include "kernels.hpp"
#include "parallel.hpp"

#include <vector>

namespace tensorlite::cpu::TL_CPU_NS {
namespace {

constexpr std::int64_t kTasks = 32;               // wanted; a number of its own and not of the machine: it decides the order of sums
constexpr std::int64_t kTilePositions = 256;      // output positions of one tile: longer sums move less memory, shorter ones stay in cache
constexpr std::int64_t kRegionBytes = 256 << 10;  // of one tile's part of an image
constexpr std::int64_t kInPlaceRows = 4 * kTileRows;  // of the product: fewer do not repay a copy of the gradient

/// grad_weight as a product (taps * channels) x positions x output channels, grad_bias as one more row of it.
template <class In> struct WeightGradient {
  std::int64_t batch, groups, channels, outputs;  ///< channels and outputs per group
  ConvAxis h, w;
  ConvImages<In> images;
  const In* grad_out;
  In* grad_weight;
  In* grad_bias;  ///< null when not wanted

  std::int64_t rows() const { return h.taps * w.taps * channels; }
  std::int64_t positions() const { return batch * h.outputs * w.outputs; }
};

/// How the positions are cut: a unit is one tile of `images` images; a chunk is a run of units summed up by one task; the chunks' sums
/// are added in their order. Depends on the shape alone.
template <class T> struct Cut {
  ConvTiling tiling;
  std::int64_t images, units, chunks;
  ColumnPanels<T> panels;
  std::int64_t slice;  ///< elements of one task's sums

  template <class In> explicit Cut(const WeightGradient<In>& p) : panels{p.outputs}, slice((p.rows() + 1) * kTileColumns<T>) {
    const std::int64_t plane = p.h.outputs * p.w.outputs;
    tiling = choose_tiling(p.h, p.w, p.channels, kRegionBytes / static_cast<std::int64_t>(sizeof(T)), ceil_div(plane, kTilePositions));
    images = tiling.count() > 1 ? 1 : std::clamp<std::int64_t>(kTilePositions / plane, 1, p.batch);
    units = ceil_div(p.batch, images) * tiling.count();
    chunks = std::min(units, ceil_div(kTasks, p.groups * panels.count));
  }
};

/// One chunk of positions against one panel of output channels of one group.
template <class T, class In> class WeightGradientTask {
 public:
  WeightGradientTask(const Context& context, const WeightGradient<In>& p, const Cut<T>& cut)
      : p_(p),
        cut_(cut),
        region_size_(p.h.extent(cut.tiling.tile_h) * p.w.extent(cut.tiling.tile_w) * p.channels),
        workspace_(context, sizeof(T) * static_cast<std::size_t>(cut.images * (round_up(region_size_, kLanes<T>) +
                                                                               cut.tiling.tile_h * cut.tiling.tile_w * kTileColumns<T>))) {}

  void run(std::int64_t group, std::int64_t panel, std::int64_t first_unit, std::int64_t last_unit, T* sums) {
    group_ = group;
    first_output_ = group * p_.outputs + cut_.panels.begin(panel);
    width_ = cut_.panels.width(panel);
    pitch_ = cut_.panels.pitch(panel);
    sums_ = sums;
    for (std::int64_t unit = first_unit; unit < last_unit; ++unit) {
      accumulate_ = unit > first_unit;
      add_tile(tile_at(unit), unit + 1 < last_unit ? tile_at(unit + 1) : Tile{});
    }
  }

 private:
  struct Tile {
    std::int64_t image = 0, images = 0, y = 0, rows = 0, x = 0, columns = 0;
  };
  /// The panel's gradients at a tile's positions: pixel_pitch from one to the next, skip more from the end of a row to the next row.
  struct Gradient {
    const T* data;
    std::int64_t pixel_pitch, skip;
  };

  Tile tile_at(std::int64_t unit) const {
    const ConvTiling& t = cut_.tiling;
    const std::int64_t image = unit / t.count() * cut_.images, y = unit % t.count() / t.columns * t.tile_h, x = unit % t.columns * t.tile_w;
    return {image, std::min(cut_.images, p_.batch - image), y, std::min(t.tile_h, p_.h.outputs - y),
            x,     std::min(t.tile_w, p_.w.outputs - x)};
  }
  const In* image_data(std::int64_t image) const {
    return p_.images.data + image * p_.images.height * p_.images.width * p_.images.pitch + group_ * p_.channels;
  }
  const In* gradient_data(std::int64_t image, std::int64_t y, std::int64_t x) const {
    return p_.grad_out + ((image * p_.h.outputs + y) * p_.w.outputs + x) * p_.groups * p_.outputs + first_output_;
  }

  void add_tile(const Tile& tile, const Tile& next) {
    const Gradient gradient = take_gradient(tile);
    const Region<T> region = take_regions(tile);
    if (p_.grad_bias) add_bias(gradient, tile);
    const bool merged = p_.w.tap_step == 1 && region.pixel_pitch == p_.channels;
    const std::int64_t taps = merged ? 1 : p_.w.taps, run = p_.channels * (merged ? p_.w.taps : 1);
    Ahead ahead = look_ahead(next, p_.h.taps * taps * ceil_div(run, kTileRows));
    TileInput<T> in{nullptr, p_.w.step * region.pixel_pitch, offsets_.data(), gradient.data, gradient.pixel_pitch, tile.columns};
    in.segments = static_cast<std::int64_t>(offsets_.size());
    in.b_skip = gradient.skip;
    for (std::int64_t y = 0; y < p_.h.taps; ++y)
      for (std::int64_t x = 0; x < taps; ++x) {
        in.a = region.data + y * p_.h.tap_step * region.row_pitch + x * p_.w.tap_step * region.pixel_pitch;
        add_run(in, run, sums_ + (y * taps + x) * run * pitch_, ahead);
      }
  }

  /// A run of (tap, channel) rows that are neighbours in memory.
  void add_run(TileInput<T> in, std::int64_t run, T* sums, Ahead& ahead) {
    const RowPanels tiles{run};
    const T* const a = in.a;
    for (std::int64_t tile = 0; tile < tiles.count; ++tile) {
      in.a = a + tiles.begin(tile);
      ahead.deal(in);
      tile_function<T>(AForm::k_major, static_cast<int>(tiles.width(tile)), static_cast<int>(pitch_ / kLanes<T>))(
          in, {sums + tiles.begin(tile) * pitch_, pitch_, nullptr, accumulate_, false});
    }
  }

  void add_bias(const Gradient& gradient, const Tile& tile) {
    T total[kTileColumns<T>] = {};
    const T* from = gradient.data;
    for (std::int64_t row = 0; row < tile.images * tile.rows; ++row, from += gradient.skip)
      for (std::int64_t x = 0; x < tile.columns; ++x, from += gradient.pixel_pitch)
        for (std::int64_t o = 0; o < pitch_; ++o) total[o] += from[o];
    T* const sums = sums_ + p_.rows() * pitch_;
    for (std::int64_t o = 0; o < pitch_; ++o) sums[o] = accumulate_ ? sums[o] + total[o] : total[o];
  }

  /// The regions of a tile's images; offsets_ lead from the first one to every row of output positions.
  Region<T> take_regions(const Tile& tile) {
    offsets_.clear();
    Region<T> first{};
    for (std::int64_t i = 0; i < tile.images; ++i) {
      const Region<T> region = take_region(workspace_.template data<T>() + i * region_size_, image_data(tile.image + i), p_.images, p_.h,
                                           p_.w, tile.y, tile.rows, tile.x, tile.columns, p_.channels);
      if (i == 0) first = region;
      for (std::int64_t y = 0; y < tile.rows; ++y) offsets_.push_back(region.data - first.data + y * p_.h.step * region.row_pitch);
    }
    return first;
  }

  /// In place when that is just as good for the tiles, else a packed panel.
  Gradient take_gradient(const Tile& tile) {
    const std::int64_t width = p_.w.outputs, pitch = p_.groups * p_.outputs;
    if constexpr (std::is_same_v<T, In>)
      if (width_ == pitch_ && (pitch == pitch_ || p_.rows() <= kInPlaceRows))
        return {gradient_data(tile.image, tile.y, tile.x), pitch, (width - tile.columns) * pitch};
    T* const copy = workspace_.template data<T>() + round_up(cut_.images * region_size_, kLanes<T>);
    T* to = copy;
    for (std::int64_t i = 0; i < tile.images; ++i)
      for (std::int64_t y = 0; y < tile.rows; ++y, to += tile.columns * pitch_)
        pack_strip(to, pitch_, Strip<In>{gradient_data(tile.image + i, tile.y + y, tile.x), width_, 1, tile.columns, pitch});
    return {copy, pitch_, 0};
  }

  Ahead look_ahead(const Tile& next, std::int64_t calls) const {
    if (next.images == 0) return {};
    const std::int64_t first = std::max<std::int64_t>(0, p_.h.begin(next.y)), rows = p_.h.extent(next.rows);
    const In* const image = image_data(next.image);
    const std::int64_t row_pitch = p_.images.width * p_.images.pitch, last = std::min(p_.images.height, first + rows);
    return {{image + first * row_pitch, image + (next.images - 1) * p_.images.height * row_pitch + last * row_pitch},
            {gradient_data(next.image, next.y, 0), gradient_data(next.image + next.images - 1, next.y + next.rows, 0)},
            calls};
  }

  const WeightGradient<In>& p_;
  const Cut<T>& cut_;
  std::int64_t region_size_;
  Workspace workspace_;
  std::vector<std::int64_t> offsets_;
  std::int64_t group_ = 0, first_output_ = 0, width_ = 0, pitch_ = 0;
  T* sums_ = nullptr;
  bool accumulate_ = false;
};

/// Adds up the chunks of row r of one panel and puts it where it belongs.
template <class T, class In>
void combine_row(const WeightGradient<In>& p, const Cut<T>& cut, const T* sums, std::int64_t group, std::int64_t panel, std::int64_t r) {
  const std::int64_t pitch = cut.panels.pitch(panel), first = group * p.outputs + cut.panels.begin(panel), width = cut.panels.width(panel);
  T total[kTileColumns<T>];
  for (std::int64_t chunk = 0; chunk < cut.chunks; ++chunk) {
    const T* from = sums + ((chunk * p.groups + group) * cut.panels.count + panel) * cut.slice + r * pitch;
    for (std::int64_t o = 0; o < pitch; ++o) total[o] = chunk ? total[o] + from[o] : from[o];
  }
  In* const to = r == p.rows() ? p.grad_bias + first : p.grad_weight + first * p.rows() + r;
  const std::int64_t stride = r == p.rows() ? 1 : p.rows();
  for (std::int64_t o = 0; o < width; ++o) to[o * stride] = static_cast<In>(total[o]);
}

template <class In> void weight_gradient(const Context& context, const WeightGradient<In>& p) {
  using T = GemmType<In>;
  if (p.positions() == 0) {
    std::fill_n(p.grad_weight, p.groups * p.rows() * p.outputs, In(0.0f));
    if (p.grad_bias) std::fill_n(p.grad_bias, p.groups * p.outputs, In(0.0f));
    return;
  }
  if (p.outputs == 0) return;
  if (p.groups > 1 && p.channels == 1 && p.outputs == 1)
    return depthwise_weight_gradient(context,
                                     DepthwiseGradient<In>{p.batch, p.groups, p.h, p.w, p.images, p.grad_out, p.grad_weight, p.grad_bias});
  if constexpr (std::is_same_v<In, float>) {
    const WinogradGradient winograd{p.batch, p.channels, p.outputs, p.h, p.w, p.images, p.grad_out, p.grad_weight, p.grad_bias};
    if (p.groups == 1 && winograd.pays()) return winograd_weight_gradient(context, winograd);
  }
  const Cut<T> cut(p);
  const std::int64_t panels = p.groups * cut.panels.count, rows = p.rows() + (p.grad_bias ? 1 : 0);
  const Workspace sums(context, sizeof(T) * static_cast<std::size_t>(cut.chunks * panels * cut.slice));
  parallel_for(cut.chunks * panels, 1, [&](std::int64_t begin, std::int64_t end) {
    WeightGradientTask<T, In> task(context, p, cut);
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t chunk = i / panels, panel = i % panels;
      task.run(panel / cut.panels.count, panel % cut.panels.count, part_begin(cut.units, cut.chunks, chunk),
               part_begin(cut.units, cut.chunks, chunk + 1), sums.data<T>() + i * cut.slice);
    }
  });
  parallel_for(panels * rows, std::max<std::int64_t>(1, 16384 / (kTileColumns<T> * cut.chunks)), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      combine_row(p, cut, sums.data<T>(), i / rows / cut.panels.count, i / rows % cut.panels.count, i % rows);
  });
}

}  // namespace

void conv2d_backward_weight(const Context& context, const View& grad_weight, const View& grad_bias, const View& grad_out, const View& in,
                            ConvParams params) {
  dispatch_floating(context.op, grad_weight.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    weight_gradient(context, WeightGradient<T>{in.size(0),
                                               params.groups,
                                               grad_weight.size(3),
                                               grad_out.size(3) / params.groups,
                                               forward_axis(params, 0, in.size(1), grad_out.size(1), grad_weight.size(1)),
                                               forward_axis(params, 1, in.size(2), grad_out.size(2), grad_weight.size(2)),
                                               {in.ptr<const T>(), in.size(1), in.size(2), in.size(3)},
                                               grad_out.ptr<const T>(),
                                               grad_weight.ptr<T>(),
                                               grad_bias ? grad_bias.ptr<T>() : nullptr});
  });
}

}  // namespace tensorlite::cpu::TL_CPU_NS
