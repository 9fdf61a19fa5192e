// gather, index_select: reading by index. Whole packs are moved where the inner axis is not the indexed one.
#include "elementwise.cuh"
#include "launch.cuh"
#include "index_check.hpp"

namespace tensorlite::cuda {
namespace {

template <class T, int V> struct Gather {
  Layout<3> layout;  ///< out, index, in (without the indexed axis)
  T* out;
  const std::int64_t* index;
  const T* in;
  std::int64_t size, stride;  ///< of the indexed axis of `in`
  IndexCheck check;
  __device__ void operator()(std::int64_t pack) const {
    std::int64_t offset[3];
    if (layout.wide) layout.offsets_wide(pack, offset);
    else layout.offsets(static_cast<std::uint32_t>(pack), offset);
    const std::int64_t given = index[offset[1]], at = given < 0 ? given + size : given;
    if (at < 0 || at >= size) return check.report(offset[1], given);
    *reinterpret_cast<Pack<T, V>*>(out + offset[0]) = *reinterpret_cast<const Pack<T, V>*>(in + offset[2] + at * stride);
  }
};

/// `index` has out's sizes; its strides may be 0.
void gather_views(const Context& context, const View& out, const View& in, const View& index, int axis) {
  if (out.numel() == 0) return;
  Dims in_strides = in.strides;
  in_strides[axis] = 0;
  const Axes<3> axes = merge_axes<3>(out.sizes, {&out.strides, &index.strides, &in_strides});
  const std::int64_t stride = in.stride(axis), size = in.size(axis);
  const std::int64_t* index_data = index.ptr<std::int64_t>();
  const IndexCheck bounds = check_indices(context, size, axis);
  dispatch_size(out.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int V = vector_width(sizeof(T));
    void* const data[3] = {out.data, nullptr, in.data};
    const std::size_t bytes[3] = {sizeof(T), sizeof(std::int64_t), sizeof(T)};
    if (axes.count && axes.stride[0][1] == 0 && axes.stride[0][2] == 1 && stride % V == 0 && packs_fit<3>(axes, V, data, bytes))
      for_each_index(context, axes.numel() / V,
                     Gather<T, V>{make_layout(axes, V), out.ptr<T>(), index_data, in.ptr<T>(), size, stride, bounds});
    else
      for_each_index(context, axes.numel(),
                     Gather<T, 1>{make_layout(axes, 1), out.ptr<T>(), index_data, in.ptr<T>(), size, stride, bounds});
  });
}

}  // namespace

void gather(const Context& context, const View& out, const View& in, const View& index, int axis) {
  gather_views(context, out, in, index, axis);
}

void index_select(const Context& context, const View& out, const View& in, const View& index, int axis) {
  Dims strides = Dims::filled(out.dim(), 0);
  strides[axis] = 1;
  gather_views(context, out, in, View(index.data, index.dtype, index.device, out.sizes, strides), axis);
}

}  // namespace tensorlite::cuda
