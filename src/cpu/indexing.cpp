// gather, scatter_add, index_select, index_add. Indices are checked before anything is written. Sums are taken in the order of the
// index, whatever the number of threads: threads share out the lines along the axis, or the places that are added to.
#include "kernels.hpp"
#include "reduce_plan.hpp"

#include <cstring>

namespace tensorlite::cpu::TL_CPU_NS {
namespace {

View dense(const View& view) {
  View result = view;
  result.strides = contiguous_strides(view.sizes);
  return result;
}

/// The view without one axis, with the sizes of `sizes`.
View lines_of(const View& view, const Dims& sizes, int axis) {
  View result = view;
  result.sizes = sizes;
  result.sizes.erase(axis);
  result.strides.erase(axis);
  return result;
}

/// Indices along an axis of `size` elements, dense, counted from the start.
class Indices {
 public:
  Indices(const Context& context, const View& index, int axis, std::int64_t size)
      : space_(context, static_cast<std::size_t>(index.numel()) * sizeof(std::int64_t)) {
    const Source<std::int64_t> source(index);
    const Loop<2> loop = make_loop(dense(index), index);
    for_each_run(loop, 0, loop.numel, [&](const auto& offsets, std::int64_t at, std::int64_t count) {
      std::int64_t* to = space_.data<std::int64_t>() + at;
      source.copy(to, offsets[1], loop.inner_stride(1), count);
      for (std::int64_t i = 0; i < count; ++i) {
        TL_CHECK(to[i] >= -size && to[i] < size, IndexError, context.op, "index ", to[i], " is out of range for axis ", axis, " of size ",
                 size, ": expected ", -size, " <= index < ", size);
        if (to[i] < 0) to[i] += size;
      }
    });
  }
  const std::int64_t* data() const { return space_.data<std::int64_t>(); }

 private:
  Workspace space_;
};

template <class T> void gather_of(const View& out, const View& in, const std::int64_t* index, int axis) {
  View lines = in;
  lines.sizes = out.sizes;
  lines.strides[axis] = 0;
  const Loop<2> loop = make_loop(dense(out), lines);
  const std::int64_t stride = loop.inner_stride(1), along = in.stride(axis);
  T* to = out.ptr<T>();
  parallel_runs(loop, 8192, [&](const auto& offsets, std::int64_t at, std::int64_t count) {
    const T* from = in.ptr<T>() + offsets[1];
    for (std::int64_t i = 0; i < count; ++i) to[at + i] = from[i * stride + index[at + i] * along];
  });
}

template <class T> void copy_run(T* to, std::int64_t to_stride, const T* from, std::int64_t from_stride, std::int64_t count) {
  if (to_stride == 1 && from_stride == 1) std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(T));
  else
    for (std::int64_t i = 0; i < count; ++i) to[i * to_stride] = from[i * from_stride];
}

template <class T> void index_select_of(const View& out, const View& in, const std::int64_t* index, int axis) {
  const View to = dense(out);
  const Loop<2> lines = make_loop(lines_of(to, out.sizes, axis), lines_of(in, out.sizes, axis));
  const std::int64_t n = out.size(axis), to_along = to.stride(axis), from_along = in.stride(axis);
  const std::int64_t to_stride = lines.inner_stride(0), from_stride = lines.inner_stride(1);
  auto select = [&](std::int64_t first, std::int64_t last, std::int64_t begin, std::int64_t end) {
    for_each_run(lines, begin, end, [&](const auto& offsets, std::int64_t, std::int64_t count) {
      T* t = to.ptr<T>() + offsets[0];
      const T* f = in.ptr<T>() + offsets[1];
      if (to_along == 1) {
        for (std::int64_t j = 0; j < count; ++j)
          for (std::int64_t k = first; k < last; ++k) t[j * to_stride + k] = f[j * from_stride + index[k] * from_along];
      } else {
        for (std::int64_t k = first; k < last; ++k) copy_run(t + k * to_along, to_stride, f + index[k] * from_along, from_stride, count);
      }
    });
  };
  if (lines.numel >= n) {
    parallel_for(lines.numel, std::max<std::int64_t>(1, 16384 / n),
                 [&](std::int64_t begin, std::int64_t end) { select(0, n, begin, end); });
  } else {
    parallel_for(n, std::max<std::int64_t>(1, 16384 / lines.numel),
                 [&](std::int64_t begin, std::int64_t end) { select(begin, end, 0, lines.numel); });
  }
}

/// What is added where: out (dense, of type T) and src, and how both are walked.
template <class T, class S> struct Addition {
  T* out;
  const S* src;
  std::int64_t axis_size, n;  ///< of out and of the index along the axis
  std::int64_t out_along, src_along;
};

template <class T, class S> void add_to(T& to, S value) { to = static_cast<T>(to + static_cast<T>(value)); }

template <class T, class S>
void scatter_add_of(const Addition<T, S>& a, const View& out, const View& index_view, const View& src, const std::int64_t* index,
                    int axis) {
  const View dense_index = dense(index_view);
  const Dims& sizes = index_view.sizes;
  const Loop<3> lines = make_loop(lines_of(dense(out), sizes, axis), lines_of(src, sizes, axis), lines_of(dense_index, sizes, axis));
  const std::int64_t out_stride = lines.inner_stride(0), src_stride = lines.inner_stride(1), index_stride = lines.inner_stride(2);
  const std::int64_t index_along = dense_index.stride(axis);
  parallel_for(lines.numel, std::max<std::int64_t>(1, 8192 / a.n), [&](std::int64_t begin, std::int64_t end) {
    for_each_run(lines, begin, end, [&](const auto& offsets, std::int64_t, std::int64_t count) {
      T* to = a.out + offsets[0];
      const S* from = a.src + offsets[1];
      const std::int64_t* at = index + offsets[2];
      auto add = [&](std::int64_t j, std::int64_t k) {
        add_to(to[j * out_stride + at[j * index_stride + k * index_along] * a.out_along], from[j * src_stride + k * a.src_along]);
      };
      if (a.out_along == 1) {
        for (std::int64_t j = 0; j < count; ++j)
          for (std::int64_t k = 0; k < a.n; ++k) add(j, k);
      } else {
        for (std::int64_t k = 0; k < a.n; ++k)
          for (std::int64_t j = 0; j < count; ++j) add(j, k);
      }
    });
  });
}

template <class T, class S>
void index_add_of(const Addition<T, S>& a, const View& out, const View& src, const std::int64_t* index, int axis) {
  const Loop<2> lines = make_loop(lines_of(dense(out), src.sizes, axis), lines_of(src, src.sizes, axis));
  const std::int64_t out_stride = lines.inner_stride(0), src_stride = lines.inner_stride(1);
  auto add = [&](std::int64_t first_place, std::int64_t last_place, std::int64_t begin, std::int64_t end) {
    for_each_run(lines, begin, end, [&](const auto& offsets, std::int64_t, std::int64_t count) {
      for (std::int64_t k = 0; k < a.n; ++k) {
        if (index[k] < first_place || index[k] >= last_place) continue;
        T* to = a.out + offsets[0] + index[k] * a.out_along;
        const S* from = a.src + offsets[1] + k * a.src_along;
        if (out_stride == 1 && src_stride == 1) {
          for (std::int64_t j = 0; j < count; ++j) add_to(to[j], from[j]);
        } else {
          for (std::int64_t j = 0; j < count; ++j) add_to(to[j * out_stride], from[j * src_stride]);
        }
      }
    });
  };
  // Many lines: each thread adds everything to some of them. Few: each adds all lines to some of the places along the axis.
  const std::int64_t threads = num_threads();
  if (lines.numel >= 64 * threads || a.axis_size < threads) {
    parallel_for(lines.numel, std::max<std::int64_t>(64, 16384 / a.n),
                 [&](std::int64_t begin, std::int64_t end) { add(0, a.axis_size, begin, end); });
    return;
  }
  const std::int64_t parts = std::clamp<std::int64_t>(lines.numel * a.n / 8192, 1, threads);
  parallel_for(parts, 1,
               [&](std::int64_t begin, std::int64_t end) { add(a.axis_size * begin / parts, a.axis_size * end / parts, 0, lines.numel); });
}

/// Calls add(Addition) for the dtype; half types are summed in a float copy of out.
template <class Add> void accumulate(const Context& context, const View& out, const View& src, int axis, std::int64_t n, Add&& add) {
  auto run = [&]<class T, class S>(T* to, const S* from) {
    add(Addition<T, S>{to, from, out.size(axis), n, contiguous_strides(out.sizes)[axis], src.stride(axis)});
  };
  dispatch_all(context.op, src.dtype, [&](auto tag) {
    using S = typename decltype(tag)::type;
    if constexpr (std::is_same_v<ComputeType<S>, S>) {
      run(out.ptr<S>(), src.ptr<const S>());
    } else {
      Workspace space(context, static_cast<std::size_t>(out.numel()) * sizeof(float));
      load_run<float>(out.dtype)(space.data<float>(), out.data, 0, 1, out.numel());
      run(space.data<float>(), src.ptr<const S>());
      store_run<float>(out.dtype)(out.data, 0, 1, space.data<float>(), out.numel());
    }
  });
}

}  // namespace

void gather(const Context& context, const View& out, const View& in, const View& index, int axis) {
  if (out.numel() == 0) return;
  const Indices indices(context, index, axis, in.size(axis));
  dispatch_bits(in.dtype, [&](auto tag) { gather_of<typename decltype(tag)::type>(out, in, indices.data(), axis); });
}

void scatter_add(const Context& context, const View& out, const View& index, const View& src, int axis) {
  if (index.numel() == 0) return;
  const Indices indices(context, index, axis, out.size(axis));
  accumulate(context, out, src, axis, index.size(axis),
             [&](const auto& addition) { scatter_add_of(addition, out, index, src, indices.data(), axis); });
}

void index_select(const Context& context, const View& out, const View& in, const View& index, int axis) {
  const Indices indices(context, index, axis, in.size(axis));
  if (out.numel() == 0) return;
  dispatch_bits(in.dtype, [&](auto tag) { index_select_of<typename decltype(tag)::type>(out, in, indices.data(), axis); });
}

void index_add(const Context& context, const View& out, const View& index, const View& src, int axis) {
  const Indices indices(context, index, axis, out.size(axis));
  if (src.numel() == 0) return;
  accumulate(context, out, src, axis, index.numel(), [&](const auto& addition) { index_add_of(addition, out, src, indices.data(), axis); });
}

}  // namespace tensorlite::cpu::TL_CPU_NS
