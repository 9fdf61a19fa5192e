// Running sums along one axis.
#include "layout.hpp"
#include "launch.cuh"
#include "accumulators.cuh"

namespace tensorlite::cuda {
namespace {

template <class T> struct Lines {
  Layout<2> layout;  ///< line -> offsets of its first element in (out, in)
  std::int64_t count, length, out_stride, in_stride;
  DType dtype;
  void* out;
  const T* in;
};

/// One element of the result, in the type of the output.
template <class C> __device__ void put(void* out, DType dtype, std::int64_t i, C value) {
  switch (dtype) {
    case DType::float32: static_cast<float*>(out)[i] = static_cast<float>(value); break;
    case DType::float64: static_cast<double*>(out)[i] = static_cast<double>(value); break;
    case DType::float16: static_cast<float16*>(out)[i] = store<float16>(static_cast<float>(value)); break;
    case DType::bfloat16: static_cast<bfloat16*>(out)[i] = store<bfloat16>(static_cast<float>(value)); break;
    case DType::int32: static_cast<std::int32_t*>(out)[i] = static_cast<std::int32_t>(value); break;
    case DType::int64: static_cast<std::int64_t*>(out)[i] = static_cast<std::int64_t>(value); break;
    case DType::uint8: static_cast<std::uint8_t*>(out)[i] = static_cast<std::uint8_t>(value); break;
    case DType::boolean: static_cast<bool*>(out)[i] = value != 0; break;
  }
}

/// Many lines: one thread each.
template <class T> struct CumsumLine {
  Lines<T> lines;
  __device__ void operator()(std::int64_t line) const {
    const std::int64_t to = lines.layout.template offset_of<0>(line), from = lines.layout.template offset_of<1>(line);
    SumType<T> sum = 0;
    for (std::int64_t i = 0; i < lines.length; ++i) {
      sum += static_cast<SumType<T>>(load(lines.in[from + i * lines.in_stride]));
      put(lines.out, lines.dtype, to + i * lines.out_stride, sum);
    }
  }
};

/// Few lines: one block each, kThreads elements at a time.
template <class T> __global__ void __launch_bounds__(kThreads) cumsum_kernel(const __grid_constant__ Lines<T> lines) {
  using C = SumType<T>;
  __shared__ C warps[kThreads / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (std::int64_t line = blockIdx.x; line < lines.count; line += gridDim.x) {
    const std::int64_t to = lines.layout.template offset_of<0>(line), from = lines.layout.template offset_of<1>(line);
    C carry = 0;
    for (std::int64_t first = 0; first < lines.length; first += kThreads) {
      const std::int64_t i = first + threadIdx.x;
      C sum = i < lines.length ? static_cast<C>(load(lines.in[from + i * lines.in_stride])) : C(0);
      for (int distance = 1; distance < 32; distance *= 2) {
        const C before = __shfl_up_sync(0xffffffffu, sum, distance);
        if (lane >= distance) sum += before;
      }
      __syncthreads();
      if (lane == 31) warps[warp] = sum;
      __syncthreads();
      C earlier = carry;
      for (int k = 0; k < warp; ++k) earlier += warps[k];
      for (int k = 0; k < kThreads / 32; ++k) carry += warps[k];
      if (i < lines.length) put(lines.out, lines.dtype, to + i * lines.out_stride, earlier + sum);
    }
  }
}

}  // namespace

void cumsum(const Context& context, const View& out, const View& in, int axis) {
  if (in.numel() == 0) return;
  Dims sizes = in.sizes;
  sizes[axis] = 1;
  const Axes<2> axes = merge_axes<2>(sizes, {&out.strides, &in.strides});
  dispatch_all(context, in.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const Lines<T> lines{make_layout(axes, 1), axes.numel(), in.size(axis), out.stride(axis),
                         in.stride(axis),      out.dtype,    out.data,      in.ptr<T>()};
    if (lines.count >= 8192 || lines.length <= 64) return for_each_index(context, lines.count, CumsumLine<T>{lines});
    cumsum_kernel<T><<<blocks_for(lines.count, 1), kThreads, 0, stream_of(context)>>>(lines);
    check_launch(context);
  });
}

}  // namespace tensorlite::cuda
