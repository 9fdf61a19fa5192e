// What the tiled float32 convolutions share: tiles of 64 x 64 results per block of 128 threads, 8 x 4 per thread, 16 steps of the sum at a
// time through two buffers in shared memory, so that the next piece is on its way while this one is multiplied.
#pragma once

#include "conv.hpp"
#include "layout.hpp"
#include "numeric.cuh"

namespace tensorlite::cuda {

inline constexpr int kConvTile = 64, kConvDepth = 16, kConvThreads = 128, kConvPitch = kConvTile + 4;
using ConvTile = float[kConvDepth][kConvPitch];

struct TileShape {
  int pixels, outs, depth;  ///< of the result; output channels; kh * kw * c
  int h, w, c;
  int stride[2], dilation[2], top, left;
  Divider width, height, channels, kernel_width;  ///< of the result; c; kw

  explicit TileShape(const Convolution& conv) {
    const View &image = conv.image, &weight = conv.weight, &result = conv.result;
    const auto size = [](std::int64_t n) { return static_cast<int>(n); };
    const auto divider = [](std::int64_t n) { return Divider(static_cast<std::uint32_t>(n)); };
    pixels = size(result.size(0) * result.size(1) * result.size(2)), outs = size(result.size(3));
    h = size(image.size(1)), w = size(image.size(2)), c = size(image.size(3));
    depth = size(weight.size(1) * weight.size(2)) * c;
    for (int i = 0; i < 2; ++i) stride[i] = size(conv.params.stride[i]), dilation[i] = size(conv.params.dilation[i]);
    top = size(conv.params.padding[0]), left = size(conv.params.padding[2]);
    width = divider(result.size(2)), height = divider(result.size(1));
    channels = divider(image.size(3)), kernel_width = divider(weight.size(2));
  }
};

/// A pixel of the result: where its window starts in the image.
struct Window {
  int y, x, offset;
  __device__ Window(const TileShape& s, int pixel) {
    const std::uint32_t line = s.width.quotient(static_cast<std::uint32_t>(pixel)), n = s.height.quotient(line);
    y = static_cast<int>(line - n * s.height.divisor) * s.stride[0] - s.top;
    x = static_cast<int>(static_cast<std::uint32_t>(pixel) - line * s.width.divisor) * s.stride[1] - s.left;
    offset = ((static_cast<int>(n) * s.h + y) * s.w + x) * s.c;
  }
};

/// A place (ky, kx, c) under a window.
struct Tap {
  int dy, dx, offset;
  Tap() = default;
  __device__ Tap(const TileShape& s, int at) {
    const std::uint32_t place = s.channels.quotient(static_cast<std::uint32_t>(at)), ky = s.kernel_width.quotient(place);
    dy = static_cast<int>(ky) * s.dilation[0];
    dx = static_cast<int>(place - ky * s.kernel_width.divisor) * s.dilation[1];
    offset = (dy * s.w + dx) * s.c + static_cast<int>(static_cast<std::uint32_t>(at) - place * s.channels.divisor);
  }
  __device__ bool inside(const TileShape& s, const Window& window) const {
    return static_cast<unsigned>(window.y + dy) < static_cast<unsigned>(s.h) &&
           static_cast<unsigned>(window.x + dx) < static_cast<unsigned>(s.w);
  }
};

/// sum[i][j] += a[row i] * b[column + j] over the steps of a piece; rows 0 to 3 start at `row`, 4 to 7 half a tile below.
__device__ __forceinline__ void multiply_piece(float (&sum)[8][4], const ConvTile& tile_a, const ConvTile& tile_b, int row, int column) {
#pragma unroll
  for (int d = 0; d < kConvDepth; ++d) {
    const Pack<float, 4> low = *reinterpret_cast<const Pack<float, 4>*>(&tile_a[d][row]),
                         high = *reinterpret_cast<const Pack<float, 4>*>(&tile_a[d][row + kConvTile / 2]),
                         b = *reinterpret_cast<const Pack<float, 4>*>(&tile_b[d][column]);
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        sum[i][j] = ::fmaf(low.v[i], b.v[j], sum[i][j]);
        sum[i + 4][j] = ::fmaf(high.v[i], b.v[j], sum[i + 4][j]);
      }
  }
}

/// Runs the tiles of one direction; the caller has checked everything.
void tile_forward(const Context& context, const Convolution& conv, const View& bias, Activation activation);
void tile_backward_weight(const Context& context, const Convolution& conv);

}  // namespace tensorlite::cuda
