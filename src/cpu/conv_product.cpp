#include "conv_product.hpp"

#include "conv_depthwise.hpp"
#include "conv_winograd.hpp"
#include "gemm.hpp"
#include "gemm_epilogue.hpp"
#include "gemm_pack.hpp"
#include "parallel.hpp"

#include <vector>

namespace tensorlite::cpu::TL_CPU_NS {
namespace {

constexpr std::int64_t kRegionBytes = 256 << 10;  // of one task's part of an image: stays in the second-level cache
constexpr std::int64_t kSerialWork = 1 << 16;

/// Weights as panels [output panel][tap][channel][lane], one group after the other.
template <class T, class In> class PackedWeights {
 public:
  PackedWeights(const Context& context, const ConvProduct<In>& p)
      : p_(p),
        depth_(p.h.taps * p.w.taps * p.channels),
        panels_(ceil_div(p.outputs, kTileColumns<T>)),
        group_size_(depth_ * round_up(p.outputs, kLanes<T>)),
        workspace_(context, sizeof(T) * static_cast<std::size_t>(p.groups * group_size_)) {
    const std::int64_t count = p.groups * panels_;
    parallel_for(count, ceil_div(kSerialWork, std::max<std::int64_t>(1, depth_ * kTileColumns<T>)),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i) pack(i / panels_, i % panels_);
                 });
  }
  const T* panel(std::int64_t group, std::int64_t panel) const {
    return workspace_.template data<T>() + group * group_size_ + panel * kTileColumns<T> * depth_;
  }
  std::int64_t panels() const { return panels_; }

 private:
  void pack(std::int64_t group, std::int64_t panel) {
    const ConvWeights<In>& w = p_.weights;
    const std::int64_t width = std::min<std::int64_t>(kTileColumns<T>, p_.outputs - panel * kTileColumns<T>);
    const std::int64_t pitch = round_up(width, kLanes<T>);
    T* to = const_cast<T*>(this->panel(group, panel));
    const In* from = w.data + group * w.group_stride + panel * kTileColumns<T> * w.output_stride;
    for (std::int64_t y = 0; y < p_.h.taps; ++y)
      for (std::int64_t x = 0; x < p_.w.taps; ++x, to += p_.channels * pitch)
        pack_strip(to, pitch, Strip<In>{from + y * w.y_stride + x * w.x_stride, width, w.output_stride, p_.channels, w.channel_stride});
  }

  const ConvProduct<In>& p_;
  std::int64_t depth_, panels_, group_size_;
  Workspace workspace_;
};

/// The part of the work that one thread does: all output channels of one group at the positions of one tile of one image.
template <class T, class In> class ConvTask {
 public:
  ConvTask(const Context& context, const ConvProduct<In>& p, const PackedWeights<T, In>& weights, const ConvTiling& tiling, const T* bias)
      : p_(p),
        weights_(weights),
        tiling_(tiling),
        bias_(bias),
        workspace_(context, sizeof(T) * static_cast<std::size_t>(p.h.extent(tiling.tile_h) * p.w.extent(tiling.tile_w) * p.channels)) {}

  /// Task `index` of the plane (image, group) and tile; `end`: where this thread's tasks end.
  void run(std::int64_t index, std::int64_t end) {
    const Tile tile = tile_at(index);
    const Region<T> region = take_region(workspace_.template data<T>(), tile.source, p_.images, p_.h, p_.w, tile.y, tile.rows, tile.x,
                                         tile.columns, p_.channels);
    set_segments(region);
    ahead_ = index + 1 < end ? look_ahead(tile_at(index + 1), weights_.panels() * tile.rows * ceil_div(tile.columns, kTileRows)) : Ahead{};
    for (std::int64_t panel = 0; panel < weights_.panels(); ++panel) run_panel(region, tile, panel);
  }

 private:
  struct Tile {
    std::int64_t image, group, y, rows, x, columns;
    const In* source;  ///< the group's channels of the image
  };

  Tile tile_at(std::int64_t index) const {
    const std::int64_t plane = index / tiling_.count(), tile = index % tiling_.count(), image = plane / p_.groups,
                       group = plane % p_.groups;
    const std::int64_t y = tile / tiling_.columns * tiling_.tile_h, x = tile % tiling_.columns * tiling_.tile_w;
    return {image,
            group,
            y,
            std::min(tiling_.tile_h, p_.h.outputs - y),
            x,
            std::min(tiling_.tile_w, p_.w.outputs - x),
            p_.images.data + image * p_.images.height * p_.images.width * p_.images.pitch + group * p_.channels};
  }

  In* out_at(const Tile& t) const {
    return p_.out + t.image * p_.out_image_stride + t.y * p_.out_row_stride + t.x * p_.out_pixel_stride + t.group * p_.outputs;
  }

  Ahead look_ahead(const Tile& next, std::int64_t tiles) const {
    const std::int64_t first = std::clamp<std::int64_t>(p_.h.begin(next.y), 0, p_.images.height);
    const std::int64_t last = std::clamp(p_.h.begin(next.y) + p_.h.extent(next.rows), first, p_.images.height);
    const std::int64_t row_pitch = p_.images.width * p_.images.pitch;
    const In* const out = out_at(next);
    return {{next.source + first * row_pitch, next.source + last * row_pitch}, {out, out + next.rows * p_.out_row_stride}, tiles};
  }

  /// Taps of output row y that lie inside the image: the others would only add zeros.
  std::pair<std::int64_t, std::int64_t> inside_taps(std::int64_t y) const {
    const std::int64_t at = p_.h.begin(y),
                       first = std::clamp<std::int64_t>(ceil_div(-std::min<std::int64_t>(at, 0), p_.h.tap_step), 0, p_.h.taps);
    const std::int64_t last = at >= p_.h.size ? first : std::clamp(ceil_div(p_.h.size - at, p_.h.tap_step), first, p_.h.taps);
    return {first, last};
  }

  /// Taps that are neighbours in memory are one segment.
  void set_segments(const Region<T>& region) {
    offsets_.clear();
    const bool merged = p_.w.tap_step == 1 && region.pixel_pitch == p_.channels;
    depth_ = p_.channels * (merged ? p_.w.taps : 1);
    offsets_per_row_ = merged ? 1 : p_.w.taps;
    for (std::int64_t y = 0; y < p_.h.taps; ++y)
      for (std::int64_t x = 0; x < offsets_per_row_; ++x)
        offsets_.push_back(y * p_.h.tap_step * region.row_pitch + x * p_.w.tap_step * region.pixel_pitch);
  }

  void run_panel(const Region<T>& region, const Tile& tile, std::int64_t panel) {
    const std::int64_t first = panel * kTileColumns<T>, width = std::min<std::int64_t>(kTileColumns<T>, p_.outputs - first);
    const std::int64_t chunks = ceil_div(tile.columns, kTileRows), pixel_step = p_.w.step * region.pixel_pitch,
                       tap_row = offsets_per_row_ * depth_;
    const Epilogue<T> epilogue{bias_ ? bias_ + tile.group * p_.outputs + first : nullptr, p_.activation};
    In* out = out_at(tile) + first;
    TileInput<T> in{nullptr, pixel_step, nullptr, nullptr, round_up(width, kLanes<T>), depth_};
    for (std::int64_t y = 0; y < tile.rows; ++y, out += p_.out_row_stride) {
      const auto [tap, tap_end] = inside_taps(tile.y + y);
      in.a_offsets = offsets_.data() + tap * offsets_per_row_;
      in.segments = (tap_end - tap) * offsets_per_row_;
      in.b = weights_.panel(tile.group, panel) + tap * tap_row * in.b_stride;
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        const std::int64_t x = part_begin(tile.columns, chunks, chunk), count = part_begin(tile.columns, chunks, chunk + 1) - x;
        in.a = region.data + y * p_.h.step * region.row_pitch + x * pixel_step;
        ahead_.deal(in);
        run_tile(AForm::row_major, in, count, width, out + x * p_.out_pixel_stride, p_.out_pixel_stride, epilogue);
      }
    }
  }

  const ConvProduct<In>& p_;
  const PackedWeights<T, In>& weights_;
  ConvTiling tiling_;
  const T* bias_;
  Workspace workspace_;
  std::vector<std::int64_t> offsets_;
  std::int64_t depth_ = 0, offsets_per_row_ = 0;
  Ahead ahead_;
};

/// A 1x1 convolution over whole images is one matrix product over all pixels of the batch; false when it is none.
template <class In> bool multiply_pixels(const Context& context, const ConvProduct<In>& p) {
  const auto whole = [](const ConvAxis& axis) { return axis.taps == 1 && axis.step == 1 && axis.origin == 0 && axis.size == axis.outputs; };
  if (p.groups != 1 || !whole(p.h) || !whole(p.w)) return false;
  if (p.out_row_stride != p.w.outputs * p.out_pixel_stride || p.out_image_stride != p.h.outputs * p.out_row_stride) return false;
  gemm(context, Gemm<In>{.batch = 1,
                         .m = p.batch * p.h.size * p.w.size,
                         .n = p.outputs,
                         .k = p.channels,
                         .a = {p.images.data, 0, p.images.pitch, 1},
                         .b = {p.weights.data, 0, p.weights.channel_stride, p.weights.output_stride},
                         .c = p.out,
                         .c_batch_stride = 0,
                         .c_stride = p.out_pixel_stride,
                         .bias = p.bias,
                         .activation = p.activation});
  return true;
}

}  // namespace

template <class In> void conv_product(const Context& context, const ConvProduct<In>& p) {
  using T = GemmType<In>;
  if (p.batch == 0 || p.h.outputs <= 0 || p.w.outputs <= 0 || p.outputs == 0) return;
  if (multiply_pixels(context, p)) return;
  const PaddedBias<T> bias(context, p.bias, p.groups * p.outputs);
  if (p.groups > 1 && p.channels == 1 && p.outputs == 1) return conv_depthwise(context, p, bias.data());
  if constexpr (std::is_same_v<In, float>)
    if (winograd_pays(p)) return conv_winograd(context, p, bias.data());
  const PackedWeights<T, In> weights(context, p);
  const std::int64_t planes = p.batch * p.groups;
  const ConvTiling tiling =
      choose_tiling(p.h, p.w, p.channels, kRegionBytes / static_cast<std::int64_t>(sizeof(T)), ceil_div(4 * num_threads(), planes));
  const std::int64_t tasks = planes * tiling.count();
  const double work = static_cast<double>(tiling.tile_h * tiling.tile_w) * static_cast<double>(p.h.taps * p.w.taps * p.channels) *
                      static_cast<double>(p.outputs);
  const std::int64_t grain = 1 + static_cast<std::int64_t>(kSerialWork / std::max(work, 1.0));
  parallel_for(tasks, grain, [&](std::int64_t begin, std::int64_t end) {
    ConvTask<T, In> task(context, p, weights, tiling, bias.data());
    for (std::int64_t i = begin; i < end; ++i) task.run(i, end);
  });
}

template void conv_product<float>(const Context&, const ConvProduct<float>&);
template void conv_product<double>(const Context&, const ConvProduct<double>&);
template void conv_product<float16>(const Context&, const ConvProduct<float16>&);
template void conv_product<bfloat16>(const Context&, const ConvProduct<bfloat16>&);

}  // namespace tensorlite::cpu::TL_CPU_NS
