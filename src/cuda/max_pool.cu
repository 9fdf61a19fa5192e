// Max pooling of dense NHWC images and its gradient, in packs of channels: each result gathers from its windows, so nothing is added
// twice.
#include "pool.cuh"

namespace tensorlite::cuda {
namespace {

/// V channels of one result. K: the window's height and width where they are known, else 0.
template <class T, int V, int K> struct MaxPool {
  PoolShape s;
  T* out;
  std::int32_t* indices;
  const T* in;
  __device__ void operator()(std::int64_t i) const {
    const Place at = place_of(i, s.oh, s.ow, s.c / V);
    const std::int64_t top = at.y * s.params.stride[0] - s.params.padding[0], left = at.x * s.params.stride[1] - s.params.padding[2];
    const T* image = in + at.n * s.h * s.w * s.c + at.c * V;
    Compute<T> value[V];
    std::int64_t best[V];
#pragma unroll
    for (int j = 0; j < V; ++j) value[j] = lowest_value(), best[j] = -1;
    const int height = K ? K : static_cast<int>(s.params.kernel[0]), width = K ? K : static_cast<int>(s.params.kernel[1]);
#pragma unroll
    for (int ky = 0; ky < height; ++ky) {
      const std::int64_t y = top + ky * s.params.dilation[0];
      if (y < 0 || y >= s.h) continue;
#pragma unroll
      for (int kx = 0; kx < width; ++kx) {
        const std::int64_t x = left + kx * s.params.dilation[1];
        if (x < 0 || x >= s.w) continue;
        const std::int64_t pixel = y * s.w + x;
        const Pack<T, V> pack = *reinterpret_cast<const Pack<T, V>*>(image + pixel * s.c);
#pragma unroll
        for (int j = 0; j < V; ++j) {
          const Compute<T> candidate = load(pack.v[j]);
          if (best[j] < 0 || candidate > value[j] || (candidate != candidate && value[j] == value[j]))
            best[j] = pixel, value[j] = candidate;
        }
      }
    }
    Pack<T, V> result;
    Pack<std::int32_t, V> places;
#pragma unroll
    for (int j = 0; j < V; ++j) result.v[j] = store<T>(value[j]), places.v[j] = static_cast<std::int32_t>(best[j]);
    reinterpret_cast<Pack<T, V>*>(out)[i] = result;
    if (indices) reinterpret_cast<Pack<std::int32_t, V>*>(indices)[i] = places;
  }
  /// Of a window that lies in the padding altogether.
  __device__ static Compute<T> lowest_value() {
    if constexpr (is_floating(dtype_of<T>)) return -std::numeric_limits<Compute<T>>::infinity();
    else return std::numeric_limits<T>::lowest();
  }
};

/// V channels of one pixel of the larger image.
template <class T, int V> struct MaxPoolBackward {
  PoolShape s;
  T* grad_in;
  const T* grad_out;
  const std::int32_t* indices;
  /// Windows [first, last] that may hold row (or column) `at`; which of them chose the pixel, their indices say.
  __device__ void candidates(int axis, std::int64_t at, std::int32_t& first, std::int32_t& last) const {
    const std::int32_t stride = static_cast<std::int32_t>(s.params.stride[axis]);
    const std::int64_t end = at + s.params.padding[2 * axis], begin = end - (s.params.kernel[axis] - 1) * s.params.dilation[axis];
    first = begin <= 0 ? 0 : (static_cast<std::int32_t>(begin) + stride - 1) / stride;
    last = min(static_cast<std::int32_t>(end) / stride, static_cast<std::int32_t>(axis == 0 ? s.oh : s.ow) - 1);
  }
  __device__ void operator()(std::int64_t i) const {
    const Place at = place_of(i, s.h, s.w, s.c / V);
    const std::int32_t self = static_cast<std::int32_t>(at.y * s.w + at.x);
    std::int32_t top, bottom, left, right;
    candidates(0, at.y, top, bottom);
    candidates(1, at.x, left, right);
    Compute<T> sum[V] = {};
    for (std::int32_t oy = top; oy <= bottom; ++oy)
      for (std::int32_t ox = left; ox <= right; ++ox) {
        const std::int64_t o = ((at.n * s.oh + oy) * s.ow + ox) * (s.c / V) + at.c;
        const Pack<std::int32_t, V> chosen = reinterpret_cast<const Pack<std::int32_t, V>*>(indices)[o];
        const Pack<T, V> gradient = reinterpret_cast<const Pack<T, V>*>(grad_out)[o];
#pragma unroll
        for (int j = 0; j < V; ++j)
          if (chosen.v[j] == self) sum[j] += load(gradient.v[j]);
      }
    Pack<T, V> result;
#pragma unroll
    for (int j = 0; j < V; ++j) result.v[j] = store<T>(sum[j]);
    reinterpret_cast<Pack<T, V>*>(grad_in)[i] = result;
  }
};

constexpr int kPack = 4;  ///< channels of one thread, where their number and the addresses allow it

template <class T> bool packs_fit(std::int64_t channels, std::initializer_list<const void*> data) {
  if (channels % kPack != 0) return false;
  for (const void* p : data)
    if (reinterpret_cast<std::uintptr_t>(p) % (kPack * std::max(sizeof(T), sizeof(std::int32_t))) != 0) return false;
  return true;
}

}  // namespace

void max_pool2d(const Context& context, const View& out, const View& indices, const View& in, PoolParams params) {
  TL_CHECK(!indices.present || in.size(1) * in.size(2) < (std::int64_t(1) << 31), ShapeError, context.op, "images of ", in.size(1), " x ",
           in.size(2), " pixels are too large for gradients of max pooling; split them");
  dispatch_all(context, in.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto run = [&](auto width, auto window) {
      constexpr int V = decltype(width)::value, K = decltype(window)::value;
      for_each_index(
          context, out.numel() / V,
          MaxPool<T, V, K>{shape_of(in, out, params), out.ptr<T>(), indices.present ? indices.ptr<std::int32_t>() : nullptr, in.ptr<T>()});
    };
    using std::integral_constant;
    if (!packs_fit<T>(in.size(3), {out.data, in.data, indices.present ? indices.data : nullptr}))
      run(integral_constant<int, 1>{}, integral_constant<int, 0>{});
    else if (params.kernel[0] == 2 && params.kernel[1] == 2) run(integral_constant<int, kPack>{}, integral_constant<int, 2>{});
    else run(integral_constant<int, kPack>{}, integral_constant<int, 0>{});
  });
}

void max_pool2d_backward(const Context& context, const View& grad_in, const View& grad_out, const View& indices, PoolParams params) {
  dispatch_floating(context, grad_in.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto run = [&](auto width) {
      constexpr int V = decltype(width)::value;
      for_each_index(
          context, grad_in.numel() / V,
          MaxPoolBackward<T, V>{shape_of(grad_in, grad_out, params), grad_in.ptr<T>(), grad_out.ptr<T>(), indices.ptr<std::int32_t>()});
    };
    if (packs_fit<T>(grad_in.size(3), {grad_in.data, grad_out.data, indices.data})) run(std::integral_constant<int, kPack>{});
    else run(std::integral_constant<int, 1>{});
  });
}

}  // namespace tensorlite::cuda
