// The weight's gradient in float32 as an implicit product, outputs by places under the window, summed over the pixels in parts.
#include "conv_tile.cuh"

namespace tensorlite::cuda {
namespace {

struct WeightTiles {
  TileShape shape;
  const float *image, *gradient;
  float* parts;  ///< [part][outs][depth]
  int length;    ///< pixels of a part
};

/// Four places of the window of two pixels and four outputs of their gradients. kQuads: the places are neighbours.
template <bool kQuads> struct WeightPiece {
  static constexpr int kTaps = kQuads ? 1 : 4;
  Pack<float, 4> a[2], b[2];

  __device__ void read(const WeightTiles& p, const Tap (&taps)[kTaps], int pixel, int end, int out, int at) {
    const TileShape& s = p.shape;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int here = pixel + i * kConvDepth / 2;
      a[i] = b[i] = {};
      if (here >= end) continue;
      if (out < s.outs) a[i] = *reinterpret_cast<const Pack<float, 4>*>(p.gradient + static_cast<std::int64_t>(here) * s.outs + out);
      const Window window(s, here);
      if constexpr (kQuads) {
        if (at < s.depth && taps[0].inside(s, window))
          b[i] = *reinterpret_cast<const Pack<float, 4>*>(p.image + window.offset + taps[0].offset);
      } else {
#pragma unroll
        for (int j = 0; j < 4; ++j)
          if (at + j < s.depth && taps[j].inside(s, window)) b[i].v[j] = p.image[window.offset + taps[j].offset];
      }
    }
  }
  __device__ void write(ConvTile& tile_a, ConvTile& tile_b, int line, int quad) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      *reinterpret_cast<Pack<float, 4>*>(&tile_a[line + i * kConvDepth / 2][quad * 4]) = a[i];
      *reinterpret_cast<Pack<float, 4>*>(&tile_b[line + i * kConvDepth / 2][quad * 4]) = b[i];
    }
  }
};

template <bool kQuads> __global__ void __launch_bounds__(kConvThreads, 4) tile_weight_kernel(const __grid_constant__ WeightTiles p) {
  using Piece = WeightPiece<kQuads>;
  __shared__ alignas(16) ConvTile tile_a[2], tile_b[2];
  const TileShape& s = p.shape;
  const int t = static_cast<int>(threadIdx.x), line = t / 16, quad = t % 16, row = line * 4, column = quad * 4;
  const int n0 = static_cast<int>(blockIdx.x) * kConvTile, m0 = static_cast<int>(blockIdx.y) * kConvTile;
  const int begin = static_cast<int>(blockIdx.z) * p.length, end = min(begin + p.length, s.pixels);
  Tap taps[Piece::kTaps];
#pragma unroll
  for (int j = 0; j < Piece::kTaps; ++j) taps[j] = Tap(s, n0 + column + j);
  float sum[8][4] = {};
  Piece piece;
  piece.read(p, taps, begin + line, end, m0 + quad * 4, n0 + column);
  piece.write(tile_a[0], tile_b[0], line, quad);
  __syncthreads();
  for (int at = begin, buffer = 0; at < end; at += kConvDepth, buffer ^= 1) {
    piece.read(p, taps, at + kConvDepth + line, end, m0 + quad * 4, n0 + column);
    multiply_piece(sum, tile_a[buffer], tile_b[buffer], row, column);
    piece.write(tile_a[buffer ^ 1], tile_b[buffer ^ 1], line, quad);
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int out = m0 + row + i % 4 + i / 4 * (kConvTile / 2);
    float* to = p.parts + (static_cast<std::int64_t>(blockIdx.z) * s.outs + out) * s.depth + n0 + column;
    if (out >= s.outs) continue;
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (n0 + column + j < s.depth) to[j] = sum[i][j];
  }
}

}  // namespace

void tile_backward_weight(const Context& context, const Convolution& conv) {
  const TileShape shape(conv);
  const View& weight = conv.weight;
  const std::int64_t tiles_n = (shape.depth + kConvTile - 1) / kConvTile, tiles_m = (shape.outs + kConvTile - 1) / kConvTile;
  const std::int64_t wanted = std::int64_t(limits_of(context).multiprocessors) * 4 / (tiles_n * tiles_m);
  const std::int64_t most = std::max<std::int64_t>(shape.pixels / (4 * kConvDepth), 1);
  const std::int64_t length =
      (shape.pixels / std::clamp<std::int64_t>(wanted, 1, std::min<std::int64_t>(most, 1024)) / kConvDepth + 1) * kConvDepth;
  const std::int64_t parts = (shape.pixels + length - 1) / length;
  const Workspace memory(context, parts == 1 ? 0 : static_cast<std::size_t>(parts * weight.nbytes()));
  const WeightTiles p{shape, conv.image.ptr<float>(), conv.result.ptr<float>(), parts == 1 ? weight.ptr<float>() : memory.data<float>(),
                      static_cast<int>(length)};
  const dim3 blocks(static_cast<unsigned>(tiles_n), static_cast<unsigned>(tiles_m), static_cast<unsigned>(parts));
  if (shape.c % 4 == 0) tile_weight_kernel<true><<<blocks, kConvThreads, 0, stream_of(context)>>>(p);
  else tile_weight_kernel<false><<<blocks, kConvThreads, 0, stream_of(context)>>>(p);
  check_launch(context);
  if (parts == 1) return;
  const auto matrix = [&](void* data, std::int64_t rows) {
    return View(data, weight.dtype, weight.device, Dims{rows, weight.numel()}, Dims{weight.numel(), 1});
  };
  reduce(context, ReduceOp::sum, matrix(weight.data, 1), matrix(memory.data(), parts), 0b01, 0);
}

}  // namespace tensorlite::cuda
