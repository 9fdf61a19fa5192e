// scatter_add, index_add: the indices are sorted (stably), then each target sums its sources in their order: the same bits every time.
#include "index_check.hpp"
#include "layout.hpp"
#include "launch.cuh"
#include "numeric.cuh"

#include <cub/device/device_radix_sort.cuh>

namespace tensorlite::cuda {
namespace {

/// Key of a source: the offset of its target in `out`; of a bad index, past every target.
struct MakeKeys {
  Layout<3> layout;  ///< source number, index, out (without the indexed axis)
  const std::int64_t* index;
  std::int64_t size, stride;
  std::int64_t *keys, *sources;
  IndexCheck check;
  __device__ void operator()(std::int64_t i) const {
    std::int64_t offset[3];
    if (layout.wide) layout.offsets_wide(i, offset);
    else layout.offsets(static_cast<std::uint32_t>(i), offset);
    const std::int64_t given = index[offset[1]], at = given < 0 ? given + size : given;
    const bool good = at >= 0 && at < size;
    if (!good) check.report(offset[1], given);
    keys[offset[0]] = good ? offset[2] + at * stride : std::numeric_limits<std::int64_t>::max();
    sources[offset[0]] = offset[0];
  }
};

/// The first source of each target sums the whole run. `inner`: elements side by side that share an index.
template <class T> struct AddRuns {
  T* out;
  const T* src;
  const std::int64_t *keys, *sources;
  std::int64_t count, inner;
  Layout<2> source_layout, inner_layout;  ///< source number, inner number -> (src, out) offsets
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t k = i / inner, key = keys[k];
    if (key == std::numeric_limits<std::int64_t>::max() || (k > 0 && keys[k - 1] == key)) return;
    const std::int64_t j = i - k * inner, from = inner_layout.offset_of<0>(j), to = key + inner_layout.offset_of<1>(j);
    Compute<T> sum = load(out[to]);
    for (std::int64_t r = k; r < count && keys[r] == key; ++r) sum += load(src[source_layout.offset_of<0>(sources[r]) + from]);
    out[to] = store<T>(sum);
  }
};

/// Sorts keys with their sources; the results replace the pointers.
void sort_keys(const Context& context, std::int64_t count, std::int64_t*& keys, std::int64_t*& sources, std::int64_t* other_keys,
               std::int64_t* other_sources) {
  cub::DoubleBuffer<std::int64_t> key_buffer(keys, other_keys), source_buffer(sources, other_sources);
  std::size_t bytes = 0;
  check(context.op, "sorting indices",
        cub::DeviceRadixSort::SortPairs(nullptr, bytes, key_buffer, source_buffer, count, 0, 64, stream_of(context)));
  const Workspace scratch(context, bytes);
  check(context.op, "sorting indices",
        cub::DeviceRadixSort::SortPairs(scratch.data(), bytes, key_buffer, source_buffer, count, 0, 64, stream_of(context)));
  keys = key_buffer.Current();
  sources = source_buffer.Current();
}

/// Sources are the elements of `sizes`, with `index` and `src` strides over them; each stands for `inner` elements more.
struct Scatter {
  Dims sizes, index_strides, src_strides, out_strides;
  Axes<2> inner;  ///< (src, out) strides of the elements that share an index
};

void scatter(const Context& context, const View& out, const View& index, const View& src, int axis, const Scatter& plan) {
  const std::int64_t count = plan.sizes.product(), inner = plan.inner.numel();
  if (count == 0 || inner == 0) return;
  const Workspace memory(context, static_cast<std::size_t>(count) * 4 * sizeof(std::int64_t));
  std::int64_t *keys = memory.data<std::int64_t>(), *sources = keys + count;
  const std::int64_t* index_data = index.ptr<std::int64_t>();
  Dims out_strides = plan.out_strides;
  const std::int64_t stride = out.stride(axis), size = out.size(axis);
  const Dims numbers = contiguous_strides(plan.sizes);
  const Layout<3> layout = make_layout(merge_axes<3>(plan.sizes, {&numbers, &plan.index_strides, &out_strides}), 1);
  for_each_index(context, count, MakeKeys{layout, index_data, size, stride, keys, sources, check_indices(context, size, axis)});
  sort_keys(context, count, keys, sources, memory.data<std::int64_t>() + 2 * count, memory.data<std::int64_t>() + 3 * count);
  // The layout must number sources as `numbers` does, so the src strides come second.
  const Axes<2> by_number = merge_axes<2>(plan.sizes, {&numbers, &plan.src_strides});
  Axes<2> source_axes = by_number;
  for (int i = 0; i < source_axes.count; ++i) source_axes.stride[i][0] = by_number.stride[i][1];
  dispatch_all(context, out.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    for_each_index(
        context, count * inner,
        AddRuns<T>{out.ptr<T>(), src.ptr<T>(), keys, sources, count, inner, make_layout(source_axes, 1), make_layout(plan.inner, 1)});
  });
}

}  // namespace

void scatter_add(const Context& context, const View& out, const View& index, const View& src, int axis) {
  Scatter plan{index.sizes, index.strides, src.strides, out.strides, {}};
  plan.out_strides[axis] = 0;
  scatter(context, out, index, src, axis, plan);
}

void index_add(const Context& context, const View& out, const View& index, const View& src, int axis) {
  Dims inner = src.sizes;
  inner[axis] = 1;
  const Scatter plan{Dims{src.size(axis)}, Dims{1}, Dims{src.stride(axis)}, Dims{0}, merge_axes<2>(inner, {&src.strides, &out.strides})};
  scatter(context, out, index, src, axis, plan);
}

}  // namespace tensorlite::cuda
