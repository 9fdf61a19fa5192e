// The weight gradient of a 3x3 convolution as Winograd's F(3x3, 4x4), of a 5x5 one as F(5x5, 2x2): the output gradient's tiles take the
// kernel's place. All tiles are summed before the one transform back.
#include "conv_winograd.hpp"

#include "conv_winograd_tile.hpp"
#include "gemm_pack.hpp"
#include "parallel.hpp"

namespace tensorlite::cpu::TL_CPU_NS {
namespace {

using namespace winograd;

constexpr std::int64_t kTasks = 16;  // a number of its own and not of the machine: it decides the order of sums
constexpr std::int64_t kBlockBytes = 640 << 10;
constexpr std::int64_t kNoOffset = 0;

/// Sums of one task: [point][channel][lane of the panel], then the panel's bias.
std::int64_t slice_size(const WinogradGradient& p) { return (kPoints * p.channels + 1) * kTileColumns<float>; }

/// A chunk of tiles against one panel of output channels; the image is transformed again for every panel.
template <int Taps> class GradientTask {
  static constexpr int kOut = outputs_of(Taps);

 public:
  GradientTask(const Context& context, const WinogradGradient& p, std::int64_t block)
      : p_(p),
        columns_(axis_tiles(p.w)),
        per_image_(axis_tiles(p.h) * columns_),
        block_(block),
        image_row_(p.channels + 16),
        image_pitch_(point_pitch(block * image_row_)),
        gradient_pitch_(point_pitch(block * kTileColumns<float>)),
        workspace_(context, sizeof(float) *
                                static_cast<std::size_t>(kPoints * (image_pitch_ + gradient_pitch_ + p.channels + kTileColumns<float>))) {
    images_ = workspace_.data<float>();
    gradients_ = images_ + kPoints * image_pitch_;
    border_ = gradients_ + kPoints * gradient_pitch_;
  }

  void run(std::int64_t panel, std::int64_t begin, std::int64_t end, float* sums) {
    first_ = panel * kTileColumns<float>;
    width_ = std::min<std::int64_t>(kTileColumns<float>, p_.outputs - first_);
    sums_ = sums;
    float* const bias = sums + kPoints * p_.channels * width_;
    std::fill_n(bias, width_, 0.0f);
    for (std::int64_t tile = begin; tile < end; tile += block_) {
      const std::int64_t count = std::min(block_, end - tile);
      for (std::int64_t i = 0; i < count; ++i) load_tile(tile + i, images_ + i * image_row_, gradients_ + i * width_, bias);
      multiply(count, tile > begin, look_ahead(tile + count, std::min(end, tile + count + block_)));
    }
  }

 private:
  void load_tile(std::int64_t tile, float* image_to, float* gradient_to, float* bias) {
    const std::int64_t n = tile / per_image_, oy = tile % per_image_ / columns_ * kOut, ox = tile % columns_ * kOut;
    const std::int64_t y = p_.h.begin(oy), x = p_.w.begin(ox), pitch = p_.images.pitch;
    const float* const image = p_.images.data + n * p_.images.height * p_.images.width * pitch;
    if (y >= 0 && x >= 0 && y + kIn <= p_.images.height && x + kIn <= p_.images.width) {
      image_tile(image + (y * p_.images.width + x) * pitch, p_.images.width * pitch, pitch, p_.channels, image_to, image_pitch_);
    } else {
      copy_region(border_, image, p_.images, y, kIn, x, kIn, p_.channels);
      image_tile(border_, kIn * p_.channels, p_.channels, p_.channels, image_to, image_pitch_);
    }
    const ConvImages<float> gradients{p_.grad_out + first_, p_.h.outputs, p_.w.outputs, p_.outputs};
    const float* const gradient = gradients.data + n * p_.h.outputs * p_.w.outputs * p_.outputs;
    if (oy + kOut <= p_.h.outputs && ox + kOut <= p_.w.outputs)
      return gradient_tile(gradient + (oy * p_.w.outputs + ox) * p_.outputs, p_.w.outputs * p_.outputs, p_.outputs, gradient_to, bias);
    copy_region(border_, gradient, gradients, oy, kOut, ox, kOut, width_);
    gradient_tile(border_, kOut * width_, width_, gradient_to, bias);
  }

  void gradient_tile(const float* from, std::int64_t row_pitch, std::int64_t pixel_pitch, float* to, float* bias) const {
    for (std::int64_t o = 0; o < width_; o += kL) {
      P in[kOut * kOut], half[kIn * kOut], total = pset1<P>(0.0f);
      for (int y = 0; y < kOut; ++y)
        for (int x = 0; x < kOut; ++x) {
          in[y * kOut + x] = ploadu<P>(from + y * row_pitch + x * pixel_pitch + o);
          total = padd(total, in[y * kOut + x]);
        }
      pstoreu(bias + o, padd(ploadu<P>(bias + o), total));
      for (int x = 0; x < kOut; ++x) evaluate<kOut>(in + x, kOut, half + x, kOut);
      for (int y = 0; y < kIn; ++y) {
        P out[kIn];
        evaluate<kOut>(half + y * kOut, 1, out, 1);
        for (int x = 0; x < kIn; ++x) pstoreu(to + (y * kIn + x) * gradient_pitch_ + o, out[x]);
      }
    }
  }

  void multiply(std::int64_t tiles, bool accumulate, Ahead ahead) const {
    const RowPanels rows{p_.channels};
    for (std::int64_t point = 0; point < kPoints; ++point)
      for (std::int64_t row = 0; row < rows.count; ++row) {
        TileInput<float> in{
            images_ + point * image_pitch_ + rows.begin(row), image_row_, &kNoOffset, gradients_ + point * gradient_pitch_, width_, tiles};
        ahead.deal(in);
        tile_function<float>(AForm::k_major, static_cast<int>(rows.width(row)), static_cast<int>(width_ / kL))(
            in, {sums_ + (point * p_.channels + rows.begin(row)) * width_, width_, nullptr, accumulate, false});
      }
  }

  /// The images and gradients of the image rows that tiles [begin, end) touch.
  Ahead look_ahead(std::int64_t begin, std::int64_t end) const {
    if (begin >= end) return {};
    const auto row = [&](std::int64_t tile) { return tile % per_image_ / columns_ * kOut; };
    const auto image = [&](std::int64_t tile, std::int64_t y) {
      return p_.images.data +
             (tile / per_image_ * p_.images.height + std::clamp<std::int64_t>(y, 0, p_.images.height)) * p_.images.width * p_.images.pitch;
    };
    const auto gradient = [&](std::int64_t tile, std::int64_t y) {
      return p_.grad_out + (tile / per_image_ * p_.h.outputs + std::min(y, p_.h.outputs)) * p_.w.outputs * p_.outputs;
    };
    return {{image(begin, p_.h.begin(row(begin))), image(end - 1, p_.h.begin(row(end - 1)) + kIn)},
            {gradient(begin, row(begin)), gradient(end - 1, row(end - 1) + kOut)},
            kPoints * RowPanels{p_.channels}.count};
  }

  const WinogradGradient& p_;
  std::int64_t columns_, per_image_, block_;
  std::int64_t image_row_, image_pitch_, gradient_pitch_;
  Workspace workspace_;
  float *images_, *gradients_, *border_, *sums_ = nullptr;
  std::int64_t first_ = 0, width_ = 0;
};

/// Adds the chunks of one channel and one packet of outputs and transforms the sum back; `sums`: the panel's first chunk.
template <int Taps>
void finish(const WinogradGradient& p, const float* sums, std::int64_t chunks, std::int64_t chunk_pitch, std::int64_t width, std::int64_t c,
            std::int64_t lane, std::int64_t output) {
  P total[kPoints], half[Taps * kIn];
  for (int point = 0; point < kPoints; ++point) {
    const float* from = sums + (point * p.channels + c) * width + lane;
    total[point] = ploadu<P>(from);
    for (std::int64_t chunk = 1; chunk < chunks; ++chunk) total[point] = padd(total[point], ploadu<P>(from + chunk * chunk_pitch));
  }
  for (int x = 0; x < kIn; ++x) collapse<Taps>(total + x, kIn, half + x, kIn);
  for (int y = 0; y < Taps; ++y) {
    P out[Taps];
    collapse<Taps>(half + y * kIn, 1, out, 1);
    for (int x = 0; x < Taps; ++x) {
      float lanes[kL];
      pstoreu(lanes, out[x]);
      for (int l = 0; l < kL; ++l) p.grad_weight[(((output + l) * Taps + y) * Taps + x) * p.channels + c] = lanes[l];
    }
  }
}

template <int Taps> void weight_gradient(const Context& context, const WinogradGradient& p) {
  const ColumnPanels<float> panels{p.outputs};
  const std::int64_t tiles = p.batch * axis_tiles(p.h) * axis_tiles(p.w), slice = slice_size(p);
  const std::int64_t affordable = kBlockBytes / (kPoints * (p.channels + kTileColumns<float>)*static_cast<std::int64_t>(sizeof(float)));
  const std::int64_t block = std::clamp<std::int64_t>(affordable, 16, 96),
                     chunks = std::min(ceil_div(tiles, block), ceil_div(kTasks, panels.count));
  const Workspace sums(context, sizeof(float) * static_cast<std::size_t>(chunks * panels.count * slice));
  parallel_for(chunks * panels.count, 1, [&](std::int64_t begin, std::int64_t end) {
    GradientTask<Taps> task(context, p, block);
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t chunk = i / panels.count;
      task.run(i % panels.count, part_begin(tiles, chunks, chunk), part_begin(tiles, chunks, chunk + 1), sums.data<float>() + i * slice);
    }
  });
  const std::int64_t packets = p.outputs / kL, chunk_pitch = panels.count * slice;
  parallel_for(packets * p.channels, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t output = i / p.channels * kL, panel = output / kTileColumns<float>;
      finish<Taps>(p, sums.data<float>() + panel * slice, chunks, chunk_pitch, panels.width(panel), i % p.channels,
                   output - panels.begin(panel), output);
    }
  });
  for (std::int64_t o = 0; p.grad_bias && o < p.outputs; ++o) {
    const std::int64_t panel = o / kTileColumns<float>;
    float total = 0;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk)
      total +=
          sums.data<float>()[chunk * chunk_pitch + panel * slice + kPoints * p.channels * panels.width(panel) + o - panels.begin(panel)];
    p.grad_bias[o] = total;
  }
}

}  // namespace

void winograd_weight_gradient(const Context& context, const WinogradGradient& p) {
  if (p.h.taps == 3) weight_gradient<3>(context, p);
  else weight_gradient<5>(context, p);
}

}  // namespace tensorlite::cpu::TL_CPU_NS
