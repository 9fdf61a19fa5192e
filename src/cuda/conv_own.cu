// Convolution as implicit matrix products: the patches are read where they lie, nothing is laid out in memory.
#include "accumulators.cuh"
#include "conv.hpp"
#include "layout.hpp"
#include "reduction.cuh"
#include "tile_gemm.cuh"

namespace tensorlite::cuda {
namespace {

/// Sizes as the kernels use them. Channels per group: cg in the image, og in the result.
struct ConvShape {
  std::int64_t n, h, w, c, oh, ow, o, kh, kw, cg, og;
  std::int64_t stride[2], dilation[2], top, left;
  explicit ConvShape(const Convolution& conv)
      : n(conv.image.size(0)),
        h(conv.image.size(1)),
        w(conv.image.size(2)),
        c(conv.image.size(3)),
        oh(conv.result.size(1)),
        ow(conv.result.size(2)),
        o(conv.result.size(3)),
        kh(conv.weight.size(1)),
        kw(conv.weight.size(2)),
        cg(conv.weight.size(3)),
        og(o / conv.params.groups),
        stride{conv.params.stride[0], conv.params.stride[1]},
        dilation{conv.params.dilation[0], conv.params.dilation[1]},
        top(conv.params.padding[0]),
        left(conv.params.padding[2]) {}
};

/// A pixel's or a kernel place's number taken apart: i = (first * middle_size + middle) * last_size + last.
struct Triple {
  Divider middle, last;
  Triple(std::int64_t middle_size, std::int64_t last_size)
      : middle(static_cast<std::uint32_t>(std::max<std::int64_t>(middle_size, 1))),
        last(static_cast<std::uint32_t>(std::max<std::int64_t>(last_size, 1))) {}
  __device__ void split(std::int64_t i, std::int64_t& a, std::int64_t& b, std::int64_t& c) const {
    const std::uint32_t n = static_cast<std::uint32_t>(i), rest = last.quotient(n), first = middle.quotient(rest);
    a = first;
    b = rest - first * middle.divisor;
    c = n - rest * last.divisor;
  }
};

/// The image under place (ky, kx) of the window of pixel (oy, ox): where it is read, or outside.
__device__ inline bool under(const ConvShape& s, std::int64_t oy, std::int64_t ox, std::int64_t ky, std::int64_t kx, std::int64_t& y,
                             std::int64_t& x) {
  y = oy * s.stride[0] - s.top + ky * s.dilation[0];
  x = ox * s.stride[1] - s.left + kx * s.dilation[1];
  return y >= 0 && y < s.h && x >= 0 && x < s.w;
}

/// result[pixel, o] = sum over (ky, kx, c). Batches are groups.
template <class T> struct ConvForward {
  std::int64_t batches, m, n, k;
  ConvShape s;
  Triple pixel, place;  ///< (image, oy, ox), (ky, kx, c)
  T* result;
  const T *image, *weight;
  explicit ConvForward(const Convolution& conv)
      : batches(conv.params.groups),
        s(conv),
        pixel(s.oh, s.ow),
        place(s.kw, s.cg),
        result(conv.result.ptr<T>()),
        image(conv.image.ptr<T>()),
        weight(conv.weight.ptr<T>()) {
    m = s.n * s.oh * s.ow, n = s.og, k = s.kh * s.kw * s.cg;
  }
  __device__ Compute<T> a(std::int64_t group, std::int64_t row, std::int64_t depth) const {
    std::int64_t in, oy, ox, ky, kx, c, y, x;
    pixel.split(row, in, oy, ox);
    place.split(depth, ky, kx, c);
    return under(s, oy, ox, ky, kx, y, x) ? load(image[((in * s.h + y) * s.w + x) * s.c + group * s.cg + c]) : Compute<T>(0);
  }
  __device__ Compute<T> b(std::int64_t group, std::int64_t depth, std::int64_t column) const {
    return load(weight[(group * s.og + column) * k + depth]);
  }
  __device__ void put(std::int64_t group, std::int64_t row, std::int64_t column, Compute<T> value, std::int64_t) const {
    result[row * s.o + group * s.og + column] = store<T>(value);
  }
};

/// image gradient[pixel, c] = sum over (ky, kx, o).
template <class T> struct ConvBackwardInput {
  std::int64_t batches, m, n, k;
  ConvShape s;
  Triple pixel, place;  ///< (image, y, x), (ky, kx, o)
  T* image;
  const T *result, *weight;
  explicit ConvBackwardInput(const Convolution& conv)
      : batches(conv.params.groups),
        s(conv),
        pixel(s.h, s.w),
        place(s.kw, s.og),
        image(conv.image.ptr<T>()),
        result(conv.result.ptr<T>()),
        weight(conv.weight.ptr<T>()) {
    m = s.n * s.h * s.w, n = s.cg, k = s.kh * s.kw * s.og;
  }
  __device__ Compute<T> a(std::int64_t group, std::int64_t row, std::int64_t depth) const {
    std::int64_t in, y, x, ky, kx, o;
    pixel.split(row, in, y, x);
    place.split(depth, ky, kx, o);
    const std::int64_t down = y + s.top - ky * s.dilation[0], right = x + s.left - kx * s.dilation[1];
    const std::int64_t oy = down / s.stride[0], ox = right / s.stride[1];
    if (down < 0 || right < 0 || oy * s.stride[0] != down || ox * s.stride[1] != right || oy >= s.oh || ox >= s.ow) return 0;
    return load(result[((in * s.oh + oy) * s.ow + ox) * s.o + group * s.og + o]);
  }
  __device__ Compute<T> b(std::int64_t group, std::int64_t depth, std::int64_t column) const {
    std::int64_t ky, kx, o;
    place.split(depth, ky, kx, o);
    return load(weight[(((group * s.og + o) * s.kh + ky) * s.kw + kx) * s.cg + column]);
  }
  __device__ void put(std::int64_t group, std::int64_t row, std::int64_t column, Compute<T> value, std::int64_t) const {
    image[row * s.c + group * s.cg + column] = store<T>(value);
  }
};

/// weight gradient[o, (ky, kx, c)] = sum over pixels, in parts that are added up afterwards.
template <class T> struct ConvBackwardWeight {
  std::int64_t batches, m, n, k;
  ConvShape s;
  Triple pixel, place;  ///< (image, oy, ox), (ky, kx, c)
  Compute<T>* parts;    ///< [split][o][kh * kw * cg]
  const T *image, *result;
  ConvBackwardWeight(const Convolution& conv, Compute<T>* partial)
      : batches(conv.params.groups),
        s(conv),
        pixel(s.oh, s.ow),
        place(s.kw, s.cg),
        parts(partial),
        image(conv.image.ptr<T>()),
        result(conv.result.ptr<T>()) {
    m = s.og, n = s.kh * s.kw * s.cg, k = s.n * s.oh * s.ow;
  }
  __device__ Compute<T> a(std::int64_t group, std::int64_t row, std::int64_t depth) const {
    return load(result[depth * s.o + group * s.og + row]);
  }
  __device__ Compute<T> b(std::int64_t group, std::int64_t depth, std::int64_t column) const {
    std::int64_t in, oy, ox, ky, kx, c, y, x;
    pixel.split(depth, in, oy, ox);
    place.split(column, ky, kx, c);
    return under(s, oy, ox, ky, kx, y, x) ? load(image[((in * s.h + y) * s.w + x) * s.c + group * s.cg + c]) : Compute<T>(0);
  }
  __device__ void put(std::int64_t group, std::int64_t row, std::int64_t column, Compute<T> value, std::int64_t split) const {
    parts[(split * s.o + group * s.og + row) * n + column] = value;
  }
};

/// Column i of a dense matrix.
template <class T> struct MatrixColumns {
  const T* data;
  std::int64_t columns;
  __device__ const T* line(std::int64_t column) const { return data + column; }
  __device__ T load(const T* line, std::int64_t i) const { return line[i * columns]; }
  __device__ void add(Sum<Compute<T>>& sum, T x, std::int64_t) const { sum.value += cuda::load(x); }
};
template <class T> struct StoreAs {
  T* out;
  __device__ void operator()(std::int64_t i, const Sum<Compute<T>>& sum) const { out[i] = store<T>(sum.value); }
};

template <class T> void backward_weight(const Context& context, const Convolution& conv) {
  using C = Compute<T>;
  const std::int64_t numel = conv.weight.numel(), pixels = conv.result.numel() / std::max<std::int64_t>(conv.result.size(3), 1);
  const std::int64_t og = conv.weight.size(0) / conv.params.groups;
  const std::int64_t tiles = tiles_of(conv.params.groups, og, numel / std::max<std::int64_t>(conv.weight.size(0), 1));
  const std::int64_t wanted = std::int64_t(limits_of(context).multiprocessors) * 4 / std::max<std::int64_t>(tiles, 1);
  const std::int64_t splits = std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(pixels / 256, 1));
  const Workspace parts(context, static_cast<std::size_t>(splits * numel) * sizeof(C));
  tile_gemm<C>(context, ConvBackwardWeight<T>(conv, parts.data<C>()), splits);
  // The parts are the rows of a matrix [splits, numel].
  reduce_columns<Sum<C>>(context, numel, splits, MatrixColumns<C>{parts.data<C>(), numel}, StoreAs<T>{conv.weight.ptr<T>()});
}

}  // namespace

void own_convolution(const Context& context, const Convolution& conv) {
  if (tile_convolution(context, conv, {}, Activation::none)) return;
  constexpr std::int64_t kMost = std::int64_t(1) << 31;
  const View &image = conv.image, &result = conv.result;
  TL_CHECK(image.size(0) * image.size(1) * image.size(2) < kMost && result.size(0) * result.size(1) * result.size(2) < kMost,
           NotImplementedError, context.op, "images ", image.sizes, " and ", result.sizes, " have 2^31 pixels or more; split the batch");
  dispatch_floating(context, image.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if (conv.kind == ConvKind::forward) tile_gemm<Compute<T>>(context, ConvForward<T>(conv));
    else if (conv.kind == ConvKind::backward_input) tile_gemm<Compute<T>>(context, ConvBackwardInput<T>(conv));
    else backward_weight<T>(context, conv);
  });
}

}  // namespace tensorlite::cuda
