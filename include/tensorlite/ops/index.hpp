// L3: indexing by tensors. Indices are integers; negative ones count from the end. Throws IndexError with value, axis and size.
// A GPU is not waited for: there a later op, or whatever waits for the device (item(), cpu(), synchronize()), throws that error, which
// names the op it belongs to; with TENSORLITE_CUDA_SYNC=1 the op itself throws. Results at bad indices are unspecified.
#pragma once

#include <tensorlite/ops/reduce.hpp>

namespace tensorlite {

namespace detail {
TL_API Tensor gather_forward(const Tensor& x, const Tensor& index, int axis);
TL_API Tensor scatter_add_zeros(const Dims& sizes, const Tensor& index, const Tensor& source, int axis);
TL_API Tensor index_select_forward(const Tensor& x, const Tensor& index, int axis);
TL_API Tensor index_add_zeros(const Dims& sizes, const Tensor& index, const Tensor& source, int axis);
/// int64 on the given device; throws DTypeError for anything but integers.
TL_API Tensor as_index(const char* op, const Tensor& index);
/// The index for gather or index_select, where a negative one is an error: on a CPU it throws IndexError, on a GPU it is out of range.
TL_API Tensor refuse_negative(const char* op, const Tensor& index, std::int64_t size);
}  // namespace detail

Tensor gather(const Tensor& x, int axis, const Tensor& index);
Tensor index_select(const Tensor& x, int axis, const Tensor& index);

namespace detail {
inline Tensor gather_gradient(const Tensor& g, const Dims& sizes, const Tensor& index, int axis) {
  return record("ScatterAdd", scatter_add_zeros(sizes, index, g, axis), {g}, {index},
                [axis](const BackwardContext& c, const Tensor& gg) { return Gradients{gather(gg, axis, c.saved(0))}; });
}
inline Tensor index_select_gradient(const Tensor& g, const Dims& sizes, const Tensor& index, int axis) {
  return record("IndexAdd", index_add_zeros(sizes, index, g, axis), {g}, {index},
                [axis](const BackwardContext& c, const Tensor& gg) { return Gradients{index_select(gg, axis, c.saved(0))}; });
}
}  // namespace detail

/// out[i][j] = x[i][index[i][j]] for axis 1, and so on. Shapes: index has x's rank and no larger size on the other axes; out as index.
inline Tensor gather(const Tensor& x, int axis, const Tensor& index) {
  const int at = detail::wrap_axis("gather", axis, x.dim());
  TL_CHECK(index.dim() == x.dim() && x.dim() > 0, ShapeError, "gather", "index ", index.sizes(), " and input ", x.sizes(),
           " must have the same rank, at least 1");
  for (int i = 0; i < x.dim(); ++i)
    TL_CHECK(i == at || index.sizes()[i] <= x.sizes()[i], ShapeError, "gather", "index ", index.sizes(), " is larger than input ",
             x.sizes(), " on axis ", i);
  const Tensor places = detail::as_index("gather", index);
  const Dims sizes = x.sizes();
  return detail::record(
      "GatherNd", detail::gather_forward(x, places, at), {x}, {places},
      [sizes, at](const BackwardContext& c, const Tensor& g) { return Gradients{detail::gather_gradient(g, sizes, c.saved(0), at)}; });
}

/// The slices of an axis that a 1-D index names, in its order.
inline Tensor index_select(const Tensor& x, int axis, const Tensor& index) {
  const int at = detail::wrap_axis("index_select", axis, x.dim());
  TL_CHECK(index.dim() == 1 && x.dim() > 0, ShapeError, "index_select", "needs a 1-D index and an input with axes, got ", index.sizes(),
           " and ", x.sizes());
  const Tensor places = detail::as_index("index_select", index);
  const Dims sizes = x.sizes();
  return detail::record("GatherV2", detail::index_select_forward(x, places, at), {x}, {places},
                        [sizes, at](const BackwardContext& c, const Tensor& g) {
                          return Gradients{detail::index_select_gradient(g, sizes, c.saved(0), at)};
                        });
}

/// Rows of a table. Shapes: weight [count, width], index any shape; result index's shape + [width].
inline Tensor embedding(const Tensor& weight, const Tensor& index) {
  TL_CHECK(weight.dim() == 2, ShapeError, "embedding", "the weight must be [count, width], it has shape ", weight.sizes());
  Dims sizes = index.sizes();
  sizes.push_back(weight.sizes()[1]);
  return reshape(index_select(weight, 0, index.reshape({-1})), sizes);
}

/// 1 at the index, 0 elsewhere, along a new last axis. Throws IndexError for an index outside [0, classes), ValueError.
TL_API Tensor one_hot(const Tensor& index, std::int64_t classes, DType dtype = kFloat32);

}  // namespace tensorlite
