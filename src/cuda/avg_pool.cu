// Average pooling of dense NHWC images and its gradient: each result gathers from its windows, so nothing is added twice.
#include "pool.cuh"

namespace tensorlite::cuda {
namespace {

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
