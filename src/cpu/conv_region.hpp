// Where a convolution reads its image: axis arithmetic, and regions with their padding filled in.
#pragma once

#include "gemm_kernel.hpp"

#include <tensorlite/backend.hpp>

#include <algorithm>
#include <cstring>

namespace tensorlite::cpu::TL_CPU_NS {

/// One spatial axis: output position o and tap t read source position o * step + t * tap_step + origin; outside [0, size) is zero.
struct ConvAxis {
  std::int64_t size = 0;     ///< of the source
  std::int64_t outputs = 0;  ///< positions
  std::int64_t taps = 0;
  std::int64_t step = 1, tap_step = 1, origin = 0;

  std::int64_t begin(std::int64_t output) const { return output * step + origin; }
  /// Source positions that `count` outputs read, first to last.
  std::int64_t extent(std::int64_t count) const { return taps == 0 ? 0 : (count - 1) * step + (taps - 1) * tap_step + 1; }
};

/// The forward axis of a convolution, 0: h, 1: w. Source: the input image.
inline ConvAxis forward_axis(const ConvParams& p, int axis, std::int64_t input, std::int64_t output, std::int64_t kernel) {
  return {input, output, kernel, p.stride[axis], p.dilation[axis], -p.padding[2 * axis]};
}

/// What the next unit of work will read, dealt out to the tiles of the present one: images do not fit into the second-level cache, and
/// the hardware does not foresee how tiles walk through them.
class Ahead {
 public:
  struct Span {
    const void *begin = nullptr, *end = nullptr;
  };
  Ahead() = default;
  Ahead(Span a, Span b, std::int64_t tiles) : spans_{lines(a), lines(b)} {
    share_ = ceil_div(spans_[0].end - spans_[0].at + spans_[1].end - spans_[1].at, std::max<std::int64_t>(tiles, 1));
  }
  /// Gives the tile its share.
  template <class T> void deal(TileInput<T>& in) {
    Lines& span = spans_[0].at < spans_[0].end ? spans_[0] : spans_[1];
    if (span.at >= span.end) {
      in.ahead = nullptr;
      in.ahead_step = 0;
      return;
    }
    in.ahead = span.at;
    in.ahead_step = ceil_div(share_, std::max<std::int64_t>(1, in.segments * in.depth));
    span.at += share_;
  }

 private:
  struct Lines {
    const char *at = nullptr, *end = nullptr;
  };
  /// Nothing when it could push the present work out of the cache.
  static Lines lines(Span s) {
    const Lines l{static_cast<const char*>(s.begin), static_cast<const char*>(s.end)};
    return l.end - l.at > (512 << 10) ? Lines{} : l;
  }
  Lines spans_[2];
  std::int64_t share_ = 0;
};

/// Dense NHWC images, of which one group's channels are read.
template <class In> struct ConvImages {
  const In* data;
  std::int64_t height, width, pitch;  ///< pitch: elements from pixel to pixel
};

/// A rectangle of one image as tiles read it: element (y, x, c) at data[y * row_pitch + x * pixel_pitch + c].
template <class T> struct Region {
  const T* data;
  std::int64_t row_pitch, pixel_pitch;
};

/// Fills `to` (dense, [rows, columns, channels]) with the rectangle at (y0, x0) of an image, zeros outside of it.
template <class T, class In>
void copy_region(T* to, const In* image, const ConvImages<In>& images, std::int64_t y0, std::int64_t rows, std::int64_t x0,
                 std::int64_t columns, std::int64_t channels) {
  const std::int64_t left = std::clamp<std::int64_t>(-x0, 0, columns), right = std::clamp(images.width - x0, left, columns);
  for (std::int64_t y = y0; y < y0 + rows; ++y, to += columns * channels) {
    if (y < 0 || y >= images.height) {
      std::fill(to, to + columns * channels, T(0));
      continue;
    }
    std::fill(to, to + left * channels, T(0));
    std::fill(to + right * channels, to + columns * channels, T(0));
    const In* from = image + (y * images.width + x0 + left) * images.pitch;
    if (images.pitch == channels) {
      const In* stop = from + (right - left) * channels;
      std::transform(from, stop, to + left * channels, [](In v) { return static_cast<T>(v); });
    } else {
      for (std::int64_t x = left; x < right; ++x, from += images.pitch)
        std::transform(from, from + channels, to + x * channels, [](In v) { return static_cast<T>(v); });
    }
  }
}

/// What the outputs [y0, y0 + rows) x [x0, x0 + columns) read: in place when that rectangle lies inside the image, else a copy in
/// `scratch` with the padding filled in, in the compute type.
template <class T, class In>
Region<T> take_region(T* scratch, const In* image, const ConvImages<In>& images, const ConvAxis& h, const ConvAxis& w, std::int64_t y0,
                      std::int64_t rows, std::int64_t x0, std::int64_t columns, std::int64_t channels) {
  const std::int64_t y = h.begin(y0), x = w.begin(x0), height = h.extent(rows), width = w.extent(columns);
  if (height * width * channels == 0) return {nullptr, 0, 0};
  if constexpr (std::is_same_v<T, In>)
    if (y >= 0 && x >= 0 && y + height <= images.height && x + width <= images.width)
      return {image + (y * images.width + x) * images.pitch, images.width * images.pitch, images.pitch};
  copy_region(scratch, image, images, y, height, x, width, channels);
  return {scratch, width * channels, channels};
}

/// How one task walks over an output plane: tiles of tile_h x tile_w positions.
struct ConvTiling {
  std::int64_t tile_h, tile_w, rows, columns;  ///< rows, columns: how many tiles
  std::int64_t count() const { return rows * columns; }
};

/// Tiles whose region has at most `limit` elements (one position at least), and at least `wanted` of them where the plane allows.
inline ConvTiling choose_tiling(const ConvAxis& h, const ConvAxis& w, std::int64_t channels, std::int64_t limit, std::int64_t wanted) {
  ConvTiling t{h.outputs, w.outputs, 1, 1};
  const auto region = [&] { return h.extent(t.tile_h) * w.extent(t.tile_w) * channels; };
  while (t.tile_h > 1 && (region() > limit || ceil_div(h.outputs, t.tile_h) < wanted)) t.tile_h = ceil_div(t.tile_h, 2);
  while (t.tile_w > 2 * kTileRows && (region() > limit || (h.outputs == 1 && ceil_div(w.outputs, t.tile_w) < wanted)))
    t.tile_w = round_up(ceil_div(t.tile_w, 2), kTileRows);
  t.rows = ceil_div(h.outputs, t.tile_h);
  t.columns = ceil_div(w.outputs, t.tile_w);
  return t;
}

}  // namespace tensorlite::cpu::TL_CPU_NS
