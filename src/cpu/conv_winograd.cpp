#include "conv_winograd.hpp"

#include "conv_winograd_tile.hpp"
#include "gemm_epilogue.hpp"
#include "gemm_pack.hpp"
#include "parallel.hpp"

namespace tensorlite::cpu::TL_CPU_NS {
namespace {

using namespace winograd;

constexpr std::int64_t kBlockBytes = 768 << 10;  // of one block's transformed images and products
constexpr std::int64_t kNoOffset = 0;

/// The transformed weights as panels [point][panel][channel][lane].
template <int Taps> class WinogradWeights {
 public:
  WinogradWeights(const Context& context, const ConvProduct<float>& p)
      : p_(p),
        panels_{p.outputs},
        pitch_(point_pitch(p.channels * p.outputs)),
        workspace_(context, sizeof(float) * static_cast<std::size_t>(kPoints * pitch_)) {
    parallel_for(panels_.count, 1, [&](std::int64_t begin, std::int64_t end) {
      const Workspace taps(context, sizeof(float) * static_cast<std::size_t>(Taps * Taps * p_.channels * kTileColumns<float>));
      for (std::int64_t panel = begin; panel < end; ++panel) pack(panel, taps.data<float>());
    });
  }
  const ColumnPanels<float>& panels() const { return panels_; }
  const float* panel(std::int64_t point, std::int64_t panel) const {
    return workspace_.data<float>() + point * pitch_ + panels_.begin(panel) * p_.channels;
  }

 private:
  void pack(std::int64_t panel, float* taps) {
    const ConvWeights<float>& w = p_.weights;
    const std::int64_t width = panels_.width(panel), size = p_.channels * width;
    for (std::int64_t tap = 0; tap < Taps * Taps; ++tap)
      pack_strip(taps + tap * size, width,
                 Strip<float>{w.data + panels_.begin(panel) * w.output_stride + tap / Taps * w.y_stride + tap % Taps * w.x_stride, width,
                              w.output_stride, p_.channels, w.channel_stride});
    float* const to = workspace_.data<float>() + panels_.begin(panel) * p_.channels;
    for (std::int64_t i = 0; i < size; i += kL) {
      P kernel[Taps * Taps], half[Taps * kIn], out[kPoints];
      for (int tap = 0; tap < Taps * Taps; ++tap) kernel[tap] = ploadu<P>(taps + tap * size + i);
      for (int x = 0; x < Taps; ++x) evaluate<Taps>(kernel + x, Taps, half + x, Taps);
      for (int y = 0; y < kIn; ++y) evaluate<Taps>(half + Taps * y, 1, out + kIn * y, 1);
      for (int point = 0; point < kPoints; ++point) pstoreu(to + point * pitch_ + i, out[point]);
    }
  }

  const ConvProduct<float>& p_;
  ColumnPanels<float> panels_;
  std::int64_t pitch_;
  Workspace workspace_;
};

/// How many tiles an image has.
struct TileGrid {
  std::int64_t rows, columns;
  explicit TileGrid(const ConvProduct<float>& p) : rows(axis_tiles(p.h)), columns(axis_tiles(p.w)) {}
  std::int64_t per_image() const { return rows * columns; }
};

/// One block of tiles, by one thread.
template <int Taps> class WinogradTask {
  static constexpr int kOut = outputs_of(Taps);

 public:
  WinogradTask(const Context& context, const ConvProduct<float>& p, const WinogradWeights<Taps>& weights, std::int64_t block,
               const float* bias)
      : p_(p),
        weights_(weights),
        grid_(p),
        bias_(bias),
        image_row_(p.channels + 16),
        product_row_(p.outputs + 16),
        image_pitch_(point_pitch(block * image_row_)),
        product_pitch_(point_pitch(block * product_row_)),
        workspace_(context, sizeof(float) * static_cast<std::size_t>(kPoints * (image_pitch_ + product_pitch_ + p.channels))) {
    images_ = workspace_.data<float>();
    products_ = images_ + kPoints * image_pitch_;
    border_ = products_ + kPoints * product_pitch_;
  }

  /// Tiles [begin, end); those up to next_end follow on this thread.
  void run(std::int64_t begin, std::int64_t end, std::int64_t next_end) {
    for (std::int64_t i = begin; i < end; ++i) load_tile(place(i), images_ + (i - begin) * image_row_);
    multiply(end - begin, look_ahead(end, next_end, ceil_div(end - begin, kTileRows)));
    for (std::int64_t i = begin; i < end; ++i) store_tile(place(i), products_ + (i - begin) * product_row_);
  }

 private:
  struct Place {
    std::int64_t image, y, x;  ///< first output position
  };
  Place place(std::int64_t tile) const {
    const std::int64_t in_image = tile % grid_.per_image();
    return {tile / grid_.per_image(), in_image / grid_.columns * kOut, in_image % grid_.columns * kOut};
  }

  void load_tile(const Place& at, float* to) {
    const std::int64_t y = p_.h.begin(at.y), x = p_.w.begin(at.x), width = p_.images.width, pitch = p_.images.pitch;
    const float* const image = p_.images.data + at.image * p_.images.height * width * pitch;
    if (y >= 0 && x >= 0 && y + kIn <= p_.images.height && x + kIn <= width)
      return image_tile(image + (y * width + x) * pitch, width * pitch, pitch, p_.channels, to, image_pitch_);
    copy_region(border_, image, p_.images, y, kIn, x, kIn, p_.channels);
    image_tile(border_, kIn * p_.channels, p_.channels, p_.channels, to, image_pitch_);
  }

  void multiply(std::int64_t tiles, Ahead ahead) const {
    const ColumnPanels<float>& panels = weights_.panels();
    const RowPanels rows{tiles};
    for (std::int64_t point = 0; point < kPoints; ++point)
      for (std::int64_t panel = 0; panel < panels.count; ++panel)
        for (std::int64_t row = 0; row < rows.count; ++row) {
          TileInput<float> in{images_ + point * image_pitch_ + rows.begin(row) * image_row_,
                              image_row_,
                              &kNoOffset,
                              weights_.panel(point, panel),
                              panels.width(panel),
                              p_.channels};
          ahead.deal(in);
          tile_function<float>(AForm::row_major, static_cast<int>(rows.width(row)), static_cast<int>(panels.width(panel) / kL))(
              in, {products_ + point * product_pitch_ + rows.begin(row) * product_row_ + panels.begin(panel), product_row_});
        }
  }

  void store_tile(const Place& at, const float* from) const {
    const int rows = static_cast<int>(std::min<std::int64_t>(kOut, p_.h.outputs - at.y));
    const int columns = static_cast<int>(std::min<std::int64_t>(kOut, p_.w.outputs - at.x));
    float* const to = p_.out + at.image * p_.out_image_stride + at.y * p_.out_row_stride + at.x * p_.out_pixel_stride;
    const P zero = pset1<P>(0.0f);
    for (std::int64_t o = 0; o < p_.outputs; o += kL) {
      P in[kPoints], half[kOut * kIn];
      for (int point = 0; point < kPoints; ++point) in[point] = ploadu<P>(from + point * product_pitch_ + o);
      for (int x = 0; x < kIn; ++x) collapse<kOut>(in + x, kIn, half + x, kIn);
      const P bias = bias_ ? ploadu<P>(bias_ + o) : zero;
      for (int y = 0; y < rows; ++y) {
        P out[kOut];
        collapse<kOut>(half + y * kIn, 1, out, 1);
        for (int x = 0; x < columns; ++x) {
          P value = padd(out[x], bias);
          if (p_.activation == Activation::relu) value = pmax<Eigen::PropagateNaN>(value, zero);
          pstoreu(to + y * p_.out_row_stride + x * p_.out_pixel_stride + o, value);
        }
      }
    }
  }

  /// The images that tiles [begin, end) read and the results that they write.
  Ahead look_ahead(std::int64_t begin, std::int64_t end, std::int64_t row_panels) const {
    if (begin >= end) return {};
    const auto row_of = [&](std::int64_t tile) { return std::pair{place(tile).image, place(tile).y}; };
    const auto [image, y] = row_of(begin);
    const auto [last_image, last_y] = row_of(end - 1);
    const auto source = [&](std::int64_t n, std::int64_t row) {
      return p_.images.data +
             (n * p_.images.height + std::clamp<std::int64_t>(row, 0, p_.images.height)) * p_.images.width * p_.images.pitch;
    };
    const auto target = [&](std::int64_t n, std::int64_t row) { return p_.out + n * p_.out_image_stride + row * p_.out_row_stride; };
    return {{source(image, p_.h.begin(y)), source(last_image, p_.h.begin(last_y) + kIn)},
            {target(image, y), target(last_image, std::min(p_.h.outputs, last_y + kOut))},
            kPoints * weights_.panels().count * row_panels};
  }

  const ConvProduct<float>& p_;
  const WinogradWeights<Taps>& weights_;
  TileGrid grid_;
  const float* bias_;
  std::int64_t image_row_, product_row_, image_pitch_, product_pitch_;
  Workspace workspace_;
  float *images_, *products_, *border_;
};

/// Tiles of one block: as many as the second-level cache holds beside the weights, or the most when every block has to fetch the weights
/// from further away.
std::int64_t block_tiles(const ConvProduct<float>& p) {
  constexpr std::int64_t most = 4 * kTileRows, size = sizeof(float);
  if (kPoints * p.channels * p.outputs * size > kBlockBytes) return most;
  const std::int64_t affordable = kBlockBytes / (kPoints * (p.channels + p.outputs) * size);
  return std::clamp<std::int64_t>(affordable / kTileRows * kTileRows, kTileRows, most);
}

template <int Taps> void convolve(const Context& context, const ConvProduct<float>& p, const float* bias) {
  const WinogradWeights<Taps> weights(context, p);
  const std::int64_t tiles = p.batch * TileGrid(p).per_image();
  const std::int64_t threads = num_threads(), blocks = round_up(ceil_div(tiles, block_tiles(p)), threads);
  const std::int64_t block =
      std::max<std::int64_t>(ceil_div(tiles, blocks), std::min<std::int64_t>(tiles, kTileRows));  // as many for every thread
  parallel_for(ceil_div(tiles, block), 1, [&](std::int64_t begin, std::int64_t end) {
    WinogradTask<Taps> task(context, p, weights, block, bias);
    for (std::int64_t i = begin; i < end; ++i)
      task.run(i * block, std::min(tiles, (i + 1) * block), std::min({tiles, (i + 2) * block, end * block}));
  });
}

}  // namespace

void conv_winograd(const Context& context, const ConvProduct<float>& p, const float* bias) {
  if (p.h.taps == 3) convolve<3>(context, p, bias);
  else convolve<5>(context, p, bias);
}

}  // namespace tensorlite::cpu::TL_CPU_NS
