// Max and average pooling of dense NHWC images, and their gradients: each result gathers from its windows, so nothing is added twice.
#include "launch.cuh"
#include "numeric.cuh"

namespace tensorlite::cuda {
namespace {

/// Sizes of the larger image and of the pooled one.
struct PoolShape {
  std::int64_t n = 0, h = 0, w = 0, c = 0, oh = 0, ow = 0;
  PoolParams params;
};
PoolShape shape_of(const View& image, const View& pooled, const PoolParams& params) {
  return {image.size(0), image.size(1), image.size(2), image.size(3), pooled.size(1), pooled.size(2), params};
}

struct Place {
  std::int64_t n, y, x, c;
};
/// Where element `i` of a dense [n, h, w, c] stands. 32-bit divisions where they suffice.
__device__ inline Place place_of(std::int64_t i, std::int64_t h, std::int64_t w, std::int64_t c) {
  if (i < (std::int64_t(1) << 31)) {
    std::uint32_t rest = static_cast<std::uint32_t>(i);
    const std::uint32_t pixel = rest / static_cast<std::uint32_t>(c), row = pixel / static_cast<std::uint32_t>(w),
                        image = row / static_cast<std::uint32_t>(h);
    return {image, row - image * h, pixel - row * w, rest - pixel * c};
  }
  const std::int64_t pixel = i / c, row = pixel / w, image = row / h;
  return {image, row - image * h, pixel - row * w, i - pixel * c};
}

template <class T> struct MaxPool {
  PoolShape s;
  T* out;
  std::int32_t* indices;
  const T* in;
  __device__ void operator()(std::int64_t i) const {
    const Place at = place_of(i, s.oh, s.ow, s.c);
    const std::int64_t top = at.y * s.params.stride[0] - s.params.padding[0], left = at.x * s.params.stride[1] - s.params.padding[2];
    const T* image = in + at.n * s.h * s.w * s.c + at.c;
    std::int64_t best = -1;
    Compute<T> value = 0;
    for (std::int64_t ky = 0; ky < s.params.kernel[0]; ++ky) {
      const std::int64_t y = top + ky * s.params.dilation[0];
      if (y < 0 || y >= s.h) continue;
      for (std::int64_t kx = 0; kx < s.params.kernel[1]; ++kx) {
        const std::int64_t x = left + kx * s.params.dilation[1];
        if (x < 0 || x >= s.w) continue;
        const Compute<T> candidate = load(image[(y * s.w + x) * s.c]);
        if (best < 0 || candidate > value || (candidate != candidate && value == value)) best = y * s.w + x, value = candidate;
      }
    }
    out[i] = best < 0 ? lowest_value() : image[best * s.c];
    if (indices) indices[i] = static_cast<std::int32_t>(best);
  }
  /// Of a window that lies in the padding altogether.
  __device__ static T lowest_value() {
    if constexpr (is_floating(dtype_of<T>)) return store<T>(-std::numeric_limits<Compute<T>>::infinity());
    else return std::numeric_limits<T>::lowest();
  }
};

template <class T> struct MaxPoolBackward {
  PoolShape s;
  T* grad_in;
  const T* grad_out;
  const std::int32_t* indices;
  __device__ void operator()(std::int64_t i) const {
    const Place at = place_of(i, s.h, s.w, s.c);
    const std::int32_t self = static_cast<std::int32_t>(at.y * s.w + at.x);
    Compute<T> sum = 0;
    for (std::int64_t ky = 0; ky < s.params.kernel[0]; ++ky) {
      const std::int64_t down = at.y + s.params.padding[0] - ky * s.params.dilation[0], oy = down / s.params.stride[0];
      if (down < 0 || oy * s.params.stride[0] != down || oy >= s.oh) continue;
      for (std::int64_t kx = 0; kx < s.params.kernel[1]; ++kx) {
        const std::int64_t right = at.x + s.params.padding[2] - kx * s.params.dilation[1], ox = right / s.params.stride[1];
        if (right < 0 || ox * s.params.stride[1] != right || ox >= s.ow) continue;
        const std::int64_t o = ((at.n * s.oh + oy) * s.ow + ox) * s.c + at.c;
        if (indices[o] == self) sum += load(grad_out[o]);
      }
    }
    grad_in[i] = store<T>(sum);
  }
};

/// Rows (or columns) [begin, end) of window `o`, and how many it counts for the mean.
struct Window {
  std::int64_t begin, end, counted;
};
__device__ inline Window window_of(const PoolShape& s, int axis, std::int64_t o) {
  const std::int64_t size = axis == 0 ? s.h : s.w, pooled = axis == 0 ? s.oh : s.ow;
  if (s.params.adaptive) {
    const std::int64_t begin = o * size / pooled, end = ((o + 1) * size + pooled - 1) / pooled;
    return {begin, end, end - begin};
  }
  const std::int64_t before = s.params.padding[2 * axis], after = s.params.padding[2 * axis + 1];
  const std::int64_t begin = o * s.params.stride[axis] - before, end = min(begin + s.params.kernel[axis], size + after);
  const Window inside{max(begin, std::int64_t(0)), min(end, size), 0};
  return {inside.begin, inside.end, s.params.count_include_pad ? end - begin : max(inside.end - inside.begin, std::int64_t(0))};
}

template <class T> struct AvgPool {
  PoolShape s;
  T* out;
  const T* in;
  __device__ void operator()(std::int64_t i) const {
    const Place at = place_of(i, s.oh, s.ow, s.c);
    const Window rows = window_of(s, 0, at.y), columns = window_of(s, 1, at.x);
    const T* image = in + at.n * s.h * s.w * s.c + at.c;
    Compute<T> sum = 0;
    for (std::int64_t y = rows.begin; y < rows.end; ++y)
      for (std::int64_t x = columns.begin; x < columns.end; ++x) sum += load(image[(y * s.w + x) * s.c]);
    const std::int64_t count = rows.counted * columns.counted;
    out[i] = store<T>(count > 0 ? sum / static_cast<Compute<T>>(count) : Compute<T>(0));
  }
};

template <class T> struct AvgPoolBackward {
  PoolShape s;
  T* grad_in;
  const T* grad_out;
  /// First and last window that may hold row (or column) `at`.
  __device__ void candidates(int axis, std::int64_t at, std::int64_t& first, std::int64_t& last) const {
    const std::int64_t size = axis == 0 ? s.h : s.w, pooled = axis == 0 ? s.oh : s.ow;
    if (s.params.adaptive) {
      first = at * pooled / size;
      last = min(((at + 1) * pooled + size - 1) / size, pooled - 1);
      return;
    }
    const std::int64_t end = at + s.params.padding[2 * axis], begin = end - s.params.kernel[axis] + 1;
    first = begin <= 0 ? 0 : (begin + s.params.stride[axis] - 1) / s.params.stride[axis];
    last = min(end / s.params.stride[axis], pooled - 1);
  }
  __device__ void operator()(std::int64_t i) const {
    const Place at = place_of(i, s.h, s.w, s.c);
    std::int64_t top, bottom, left, right;
    candidates(0, at.y, top, bottom);
    candidates(1, at.x, left, right);
    Compute<T> sum = 0;
    for (std::int64_t oy = top; oy <= bottom; ++oy) {
      const Window rows = window_of(s, 0, oy);
      if (at.y < rows.begin || at.y >= rows.end) continue;
      for (std::int64_t ox = left; ox <= right; ++ox) {
        const Window columns = window_of(s, 1, ox);
        if (at.x < columns.begin || at.x >= columns.end) continue;
        sum += load(grad_out[((at.n * s.oh + oy) * s.ow + ox) * s.c + at.c]) / static_cast<Compute<T>>(rows.counted * columns.counted);
      }
    }
    grad_in[i] = store<T>(sum);
  }
};

}  // namespace

void max_pool2d(const Context& context, const View& out, const View& indices, const View& in, PoolParams params) {
  TL_CHECK(!indices.present || in.size(1) * in.size(2) < (std::int64_t(1) << 31), ShapeError, context.op, "images of ", in.size(1), " x ",
           in.size(2), " pixels are too large for gradients of max pooling; split them");
  dispatch_all(context, in.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    for_each_index(
        context, out.numel(),
        MaxPool<T>{shape_of(in, out, params), out.ptr<T>(), indices.present ? indices.ptr<std::int32_t>() : nullptr, in.ptr<T>()});
  });
}

void max_pool2d_backward(const Context& context, const View& grad_in, const View& grad_out, const View& indices, PoolParams params) {
  dispatch_floating(context, grad_in.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    for_each_index(
        context, grad_in.numel(),
        MaxPoolBackward<T>{shape_of(grad_in, grad_out, params), grad_in.ptr<T>(), grad_out.ptr<T>(), indices.ptr<std::int32_t>()});
  });
}

void avg_pool2d(const Context& context, const View& out, const View& in, PoolParams params) {
  dispatch_floating(context, in.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    for_each_index(context, out.numel(), AvgPool<T>{shape_of(in, out, params), out.ptr<T>(), in.ptr<T>()});
  });
}

void avg_pool2d_backward(const Context& context, const View& grad_in, const View& grad_out, PoolParams params) {
  dispatch_floating(context, grad_in.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    for_each_index(context, grad_in.numel(), AvgPoolBackward<T>{shape_of(grad_in, grad_out, params), grad_in.ptr<T>(), grad_out.ptr<T>()});
  });
}

}  // namespace tensorlite::cuda
