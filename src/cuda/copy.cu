// copy, fill, arange, where: kernels that move or make elements.
#include "elementwise.cuh"
#include "launch.cuh"

namespace tensorlite::cuda {
namespace {

template <class To, class From> struct Convert {
  __device__ To operator()(From value) const { return convert<To>(value); }
};
template <class T> struct Constant {
  T value;
  __device__ T operator()() const { return value; }
};
template <class T> struct Choose {
  __device__ T operator()(std::uint8_t condition, T a, T b) const { return condition ? a : b; }
};

constexpr int kTile = 64, kTileRows = 4, kTileSteps = kTile / kTileRows;

/// A copy in which the output's unit axis x and the input's unit axis y differ, through tiles in shared memory.
struct Transpose {
  std::uint32_t x = 0, y = 0;
  std::int64_t in_stride_x = 0, out_stride_y = 0;
  std::uint32_t tiles_x = 0, tiles_y = 0;
  Layout<2> batch;
};

/// One thread's column of a tile, all read before the first is used. kWhole: no element lies outside.
template <bool kWhole, class T>
__device__ void read_column(T (&column)[kTileSteps], const T* from, std::int64_t step, std::uint32_t count, bool inside) {
#pragma unroll
  for (int i = 0; i < kTileSteps; ++i)
    if (kWhole || (inside && i * kTileRows + threadIdx.y < count)) column[i] = from[i * step];
}
template <bool kWhole, class T>
__device__ void write_column(T* to, const T (&column)[kTileSteps], std::int64_t step, std::uint32_t count, bool inside) {
#pragma unroll
  for (int i = 0; i < kTileSteps; ++i)
    if (kWhole || (inside && i * kTileRows + threadIdx.y < count)) to[i * step] = column[i];
}

template <class T>
__global__ void __launch_bounds__(kTile* kTileRows, 4)
    transpose_kernel(const __grid_constant__ Transpose p, T* out, const T* in, std::int64_t blocks) {
  __shared__ T tile[kTile][kTile + (sizeof(T) < 4 ? 4 / sizeof(T) : 1)];
  const unsigned lane = threadIdx.x, row = threadIdx.y;
  for (std::int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const std::uint32_t tile_x = static_cast<std::uint32_t>(block % p.tiles_x);
    const std::int64_t rest = block / p.tiles_x;
    std::int64_t offset[2];
    p.batch.offsets(static_cast<std::uint32_t>(rest / p.tiles_y), offset);
    const std::uint32_t x0 = tile_x * kTile, y0 = static_cast<std::uint32_t>(rest % p.tiles_y) * kTile;
    const T* from = in + offset[1] + (x0 + row) * p.in_stride_x + y0 + lane;
    T* to = out + offset[0] + (y0 + row) * p.out_stride_y + x0 + lane;
    const bool whole = x0 + kTile <= p.x && y0 + kTile <= p.y;
    T column[kTileSteps];
    if (whole) read_column<true>(column, from, kTileRows * p.in_stride_x, kTile, true);
    else read_column<false>(column, from, kTileRows * p.in_stride_x, p.x - x0, y0 + lane < p.y);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kTileSteps; ++i) tile[i * kTileRows + row][lane] = column[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kTileSteps; ++i) column[i] = tile[lane][i * kTileRows + row];
    if (whole) write_column<true>(to, column, kTileRows * p.out_stride_y, kTile, true);
    else write_column<false>(to, column, kTileRows * p.out_stride_y, p.y - y0, x0 + lane < p.x);
  }
}

/// The axis along which the input is contiguous when the output is not, and both are long enough for tiles; 0 when there is none.
int transposed_axis(const Axes<2>& axes) {
  if (axes.count < 2 || axes.stride[0][0] != 1 || axes.size[0] < 16 || axes.stride[0][1] == 0 || axes.stride[0][1] == 1) return 0;
  for (int i = 1; i < axes.count; ++i)
    if (axes.stride[i][1] == 1 && axes.size[i] >= 16) return i;
  return 0;
}

template <class T> void transpose(const Context& context, Axes<2> axes, int unit, T* out, const T* in) {
  Transpose p;
  p.x = static_cast<std::uint32_t>(axes.size[0]);
  p.y = static_cast<std::uint32_t>(axes.size[unit]);
  p.in_stride_x = axes.stride[0][1];
  p.out_stride_y = axes.stride[unit][0];
  p.tiles_x = (p.x + kTile - 1) / kTile;
  p.tiles_y = (p.y + kTile - 1) / kTile;
  Axes<2> batch;
  for (int i = 1; i < axes.count; ++i)
    if (i != unit) {
      batch.size[batch.count] = axes.size[i];
      batch.stride[batch.count][0] = axes.stride[i][0];
      batch.stride[batch.count++][1] = axes.stride[i][1];
    }
  p.batch = make_layout(batch, 1);
  const std::int64_t blocks = std::int64_t(p.tiles_x) * p.tiles_y * batch.numel();
  transpose_kernel<<<blocks_for(blocks, 1), dim3(kTile, kTileRows), 0, stream_of(context)>>>(p, out, in, blocks);
  check_launch(context);
}

void copy_same(const Context& context, const View& out, const View& in) {
  const Axes<2> axes = axes_of<2>(out, {&in});
  if (axes.count == 0 || (axes.count == 1 && axes.stride[0][0] == 1 && axes.stride[0][1] == 1))
    return check(context.op, "copying",
                 cudaMemcpyAsync(out.data, in.data, static_cast<std::size_t>(out.nbytes()), cudaMemcpyDeviceToDevice, stream_of(context)));
  dispatch_size(out.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const int unit = transposed_axis(axes);
    if (unit && axes.size[0] < (std::int64_t(1) << 31) && axes.size[unit] < (std::int64_t(1) << 31) &&
        axes.numel() / axes.size[0] / axes.size[unit] < (std::int64_t(1) << 31))
      return transpose(context, axes, unit, out.ptr<T>(), in.ptr<T>());
    Operands<2> operands;
    set_pointers<2>(operands, out, {&in});
    elementwise<T, T>(context, axes, operands, Convert<T, T>{}, Convert<T, T>{});
  });
}

template <class T> void arange_typed(const Context& context, const View& out, Scalar start, Scalar step) {
  T* to = out.ptr<T>();
  using Number = std::conditional_t<is_floating(dtype_of<T>), double, std::int64_t>;
  const Number first = start.as<Number>(), by = step.as<Number>();
  for_each_index(context, out.numel(), [=] __device__(std::int64_t i) { to[i] = convert<T>(first + static_cast<Number>(i) * by); });
}

}  // namespace

void copy(const Context& context, const View& out, const View& in) {
  if (out.numel() == 0) return;
  if (out.dtype == in.dtype) return copy_same(context, out, in);
  const Axes<2> axes = axes_of<2>(out, {&in});
  Operands<2> operands;
  set_pointers<2>(operands, out, {&in});
  dispatch_all(context, out.dtype, [&](auto to) {
    using To = typename decltype(to)::type;
    dispatch_all(context, in.dtype, [&](auto from) {
      using From = typename decltype(from)::type;
      if constexpr (!std::is_same_v<To, From>) elementwise<To, From>(context, axes, operands, Convert<To, From>{}, Convert<To, From>{});
    });
  });
}

void fill(const Context& context, const View& out, Scalar value) {
  if (out.numel() == 0) return;
  const Axes<1> axes = axes_of<1>(out, {});
  Operands<1> operands;
  operands.data[0] = out.data;
  dispatch_all(context, out.dtype, [&](auto type) {
    const auto typed = value.as<typename decltype(type)::type>();
    dispatch_size(out.dtype, [&](auto bits_type) {
      using Bits = typename decltype(bits_type)::type;
      Bits bits = 0;
      if constexpr (sizeof(Bits) == sizeof(typed)) __builtin_memcpy(&bits, &typed, sizeof bits);
      elementwise<Bits>(context, axes, operands, Constant<Bits>{bits}, Constant<Bits>{bits});
    });
  });
}

void arange(const Context& context, const View& out, Scalar start, Scalar step) {
  dispatch_all(context, out.dtype, [&](auto type) { arange_typed<typename decltype(type)::type>(context, out, start, step); });
}

void where(const Context& context, const View& out, const View& condition, const View& a, const View& b) {
  if (out.numel() == 0) return;
  const Axes<4> axes = axes_of<4>(out, {&condition, &a, &b});
  Operands<4> operands;
  set_pointers<4>(operands, out, {&condition, &a, &b});
  dispatch_size(out.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    elementwise<T, std::uint8_t, T, T>(context, axes, operands, Choose<T>{}, Choose<T>{});
  });
}

}  // namespace tensorlite::cuda
