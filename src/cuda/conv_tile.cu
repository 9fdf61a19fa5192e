// The forward convolution in float32 as an implicit product, pixels by outputs, the image's channels read in fours.
#include "conv_tile.cuh"

namespace tensorlite::cuda {
namespace {

struct ForwardTiles {
  TileShape shape;
  const float *image, *weight, *bias;
  float* result;
  Activation activation;
};

/// Four neighbouring places of two pixels and of two outputs, on their way from memory to the tiles.
struct ForwardPiece {
  Pack<float, 4> a[2], b[2];

  __device__ void read(const ForwardTiles& p, const Window (&windows)[2], int pixel, int out, int at) {
    const TileShape& s = p.shape;
    const Tap tap(s, at);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int half = i * kConvTile / 2;
      a[i] = b[i] = {};
      if (pixel + half < s.pixels && at < s.depth && tap.inside(s, windows[i]))
        a[i] = *reinterpret_cast<const Pack<float, 4>*>(p.image + windows[i].offset + tap.offset);
      if (out + half < s.outs && at < s.depth)
        b[i] = *reinterpret_cast<const Pack<float, 4>*>(p.weight + static_cast<std::int64_t>(out + half) * s.depth + at);
    }
  }
  __device__ void write(ConvTile& tile_a, ConvTile& tile_b, int line, int quad) const {
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        tile_a[quad * 4 + j][line + i * kConvTile / 2] = a[i].v[j];
        tile_b[quad * 4 + j][line + i * kConvTile / 2] = b[i].v[j];
      }
  }
};

__device__ __forceinline__ void store_row(const ForwardTiles& p, int pixel, int out, const float (&sum)[4]) {
  Pack<float, 4> values;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float value = p.bias ? sum[j] + p.bias[out + j] : sum[j];
    values.v[j] = p.activation == Activation::relu ? elementwise::select(value <= 0.0f, 0.0f, value) : value;
  }
  *reinterpret_cast<Pack<float, 4>*>(p.result + static_cast<std::int64_t>(pixel) * p.shape.outs + out) = values;
}

__global__ void __launch_bounds__(kConvThreads, 5) tile_forward_kernel(const __grid_constant__ ForwardTiles p) {
  __shared__ alignas(16) ConvTile tile_a[2], tile_b[2];
  const TileShape& s = p.shape;
  const int t = static_cast<int>(threadIdx.x), line = t / 4, quad = t % 4, row = t / 16 * 4, column = t % 16 * 4;
  const int m0 = static_cast<int>(blockIdx.x) * kConvTile, n0 = static_cast<int>(blockIdx.y) * kConvTile;
  const Window windows[2] = {{s, m0 + line}, {s, m0 + line + kConvTile / 2}};
  float sum[8][4] = {};
  ForwardPiece piece;
  piece.read(p, windows, m0 + line, n0 + line, quad * 4);
  piece.write(tile_a[0], tile_b[0], line, quad);
  __syncthreads();
  for (int k0 = 0, buffer = 0; k0 < s.depth; k0 += kConvDepth, buffer ^= 1) {
    piece.read(p, windows, m0 + line, n0 + line, k0 + kConvDepth + quad * 4);  // past the end: zeros, which nobody reads
    multiply_piece(sum, tile_a[buffer], tile_b[buffer], row, column);
    piece.write(tile_a[buffer ^ 1], tile_b[buffer ^ 1], line, quad);
    __syncthreads();
  }
  if (n0 + column >= s.outs) return;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int pixel = m0 + row + i % 4 + i / 4 * (kConvTile / 2);
    if (pixel < s.pixels) store_row(p, pixel, n0 + column, sum[i]);
  }
}

/// Whether every position under a window, outside the image too, has a number below 2^31.
bool positions_fit(const Convolution& conv) {
  double positions = static_cast<double>(conv.image.size(0)) * static_cast<double>(conv.image.size(3));
  for (int axis = 0; axis < 2; ++axis) {
    const std::int64_t reach = conv.params.dilation[axis] * conv.weight.size(1 + axis) + conv.params.stride[axis];
    positions *= static_cast<double>(conv.image.size(1 + axis) + conv.params.padding[2 * axis] + conv.params.padding[2 * axis + 1] + reach);
  }
  return positions < 2147483648.0;
}

bool aligned16(const View& view) { return reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0; }

}  // namespace

void tile_forward(const Context& context, const Convolution& conv, const View& bias, Activation activation) {
  const ForwardTiles p{TileShape(conv),          conv.image.ptr<float>(),
                       conv.weight.ptr<float>(), bias.present ? bias.ptr<float>() : nullptr,
                       conv.result.ptr<float>(), activation};
  const auto tiles = [](int n) { return static_cast<unsigned>((n + kConvTile - 1) / kConvTile); };
  tile_forward_kernel<<<dim3(tiles(p.shape.pixels), tiles(p.shape.outs)), kConvThreads, 0, stream_of(context)>>>(p);
  check_launch(context);
}

bool tile_convolution(const Context& context, const Convolution& conv, const View& bias, Activation activation) {
  constexpr std::int64_t kMost = std::int64_t(1) << 30;
  const View &image = conv.image, &weight = conv.weight, &result = conv.result;
  const std::int64_t pixels = result.size(0) * result.size(1) * result.size(2), outs = result.size(3);
  const bool forward = conv.kind == ConvKind::forward;
  if (conv.kind == ConvKind::backward_input || image.dtype != DType::float32 || conv.params.groups != 1 || activation == Activation::gelu)
    return false;
  if ((forward && image.size(3) % 4 != 0) || outs % 4 != 0 || outs > 65535 || weight.numel() >= kMost || pixels >= kMost ||
      result.numel() == 0 || weight.numel() == 0 || !positions_fit(conv) || !aligned16(image) || !aligned16(weight) || !aligned16(result))
    return false;
  if (forward) tile_forward(context, conv, bias, activation);
  else tile_backward_weight(context, conv);
  return true;
}

}  // namespace tensorlite::cuda
