#include "conv_product.hpp"

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

  void run(std::int64_t image, std::int64_t group, std::int64_t tile) {
    const std::int64_t y0 = tile / tiling_.columns * tiling_.tile_h, x0 = tile % tiling_.columns * tiling_.tile_w;
    const std::int64_t rows = std::min(tiling_.tile_h, p_.h.outputs - y0), columns = std::min(tiling_.tile_w, p_.w.outputs - x0);
    const In* source = p_.images.data + image * p_.images.height * p_.images.width * p_.images.pitch + group * p_.channels;
    const Region<T> region = take_region(workspace_.template data<T>(), source, p_.images, p_.h, p_.w, y0, rows, x0, columns, p_.channels);
    set_segments(region);
    In* out = p_.out + image * p_.out_image_stride + y0 * p_.out_row_stride + x0 * p_.out_pixel_stride + group * p_.outputs;
    const Epilogue<T> epilogue{bias_ ? bias_ + group * p_.outputs : nullptr, p_.activation};
    for (std::int64_t panel = 0; panel < weights_.panels(); ++panel)
      run_panel(region, weights_.panel(group, panel), panel * kTileColumns<T>, rows, columns, out, epilogue);
  }

 private:
  /// Taps that are neighbours in memory are one segment.
  void set_segments(const Region<T>& region) {
    offsets_.clear();
    const bool merged = p_.w.tap_step == 1 && region.pixel_pitch == p_.channels;
    depth_ = p_.channels * (merged ? p_.w.taps : 1);
    for (std::int64_t y = 0; y < p_.h.taps; ++y)
      for (std::int64_t x = 0; x < (merged ? 1 : p_.w.taps); ++x)
        offsets_.push_back(y * p_.h.tap_step * region.row_pitch + x * p_.w.tap_step * region.pixel_pitch);
  }

  void run_panel(const Region<T>& region, const T* weights, std::int64_t first, std::int64_t rows, std::int64_t columns, In* out,
                 const Epilogue<T>& epilogue) {
    const std::int64_t width = std::min<std::int64_t>(kTileColumns<T>, p_.outputs - first), chunks = ceil_div(columns, kTileRows);
    const std::int64_t pixel_step = p_.w.step * region.pixel_pitch;
    TileInput<T> in{
        nullptr, pixel_step, offsets_.data(), weights, round_up(width, kLanes<T>), depth_, static_cast<std::int64_t>(offsets_.size())};
    for (std::int64_t y = 0; y < rows; ++y)
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        const std::int64_t x = part_begin(columns, chunks, chunk), count = part_begin(columns, chunks, chunk + 1) - x;
        in.a = region.data + y * p_.h.step * region.row_pitch + x * pixel_step;
        run_tile(AForm::row_major, in, count, width, out + y * p_.out_row_stride + x * p_.out_pixel_stride + first, p_.out_pixel_stride,
                 epilogue.at_column(first));
      }
  }

  const ConvProduct<In>& p_;
  const PackedWeights<T, In>& weights_;
  ConvTiling tiling_;
  const T* bias_;
  Workspace workspace_;
  std::vector<std::int64_t> offsets_;
  std::int64_t depth_ = 0;
};

/// A 1x1 convolution over whole images is one product over all pixels of the batch: one long row.
template <class In> ConvProduct<In> flatten(ConvProduct<In> p) {
  const auto whole = [](const ConvAxis& axis) { return axis.taps == 1 && axis.step == 1 && axis.origin == 0 && axis.size == axis.outputs; };
  if (!whole(p.h) || !whole(p.w)) return p;
  if (p.out_row_stride != p.w.outputs * p.out_pixel_stride || p.out_image_stride != p.h.outputs * p.out_row_stride) return p;
  const std::int64_t pixels = p.batch * p.h.size * p.w.size;
  p.batch = 1;
  p.h = {1, 1, 1};
  p.w = {pixels, pixels, 1};
  p.images.height = 1;
  p.images.width = pixels;
  return p;
}

}  // namespace

template <class In> void conv_product(const Context& context, const ConvProduct<In>& problem) {
  const ConvProduct<In> p = flatten(problem);
  using T = GemmType<In>;
  if (p.batch == 0 || p.h.outputs <= 0 || p.w.outputs <= 0 || p.outputs == 0) return;
  const PaddedBias<T> bias(context, p.bias, p.groups * p.outputs);
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
    for (std::int64_t i = begin; i < end; ++i) task.run(i / tiling.count() / p.groups, i / tiling.count() % p.groups, i % tiling.count());
  });
}

template void conv_product<float>(const Context&, const ConvProduct<float>&);
template void conv_product<double>(const Context&, const ConvProduct<double>&);
template void conv_product<float16>(const Context&, const ConvProduct<float16>&);
template void conv_product<bfloat16>(const Context&, const ConvProduct<bfloat16>&);

}  // namespace tensorlite::cpu::TL_CPU_NS
