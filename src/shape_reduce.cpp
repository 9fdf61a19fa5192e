// Out-of-line part of ops/shape.hpp and ops/reduce.hpp.
#include <tensorlite/ops/reduce.hpp>

namespace tensorlite::detail {

std::optional<Dims> strides_for(const View& view, const Dims& sizes) {
  if (view.numel() == 0) return contiguous_strides(sizes);
  // Runs of axes whose elements lie evenly are matched against runs of the new sizes with the same product.
  Dims strides = Dims::filled(sizes.size(), 1);
  int to = sizes.size() - 1;
  for (int from = view.dim() - 1; from >= 0;) {
    if (view.sizes[from] == 1) {
      --from;
      continue;
    }
    const std::int64_t unit = view.strides[from];
    std::int64_t run = view.sizes[from--];
    while (from >= 0 && (view.sizes[from] == 1 || view.strides[from] == run * unit)) run *= view.sizes[from--];
    std::int64_t covered = 1;
    while (to >= 0 && (covered < run || sizes[to] == 1)) {
      strides[to] = unit * covered;
      covered *= sizes[to--];
    }
    if (covered != run) return std::nullopt;
  }
  return strides;
}

std::uint32_t axes_mask(const char* op, const Dims& axes, int rank) {
  if (axes.empty()) return (1u << rank) - 1u;
  std::uint32_t mask = 0;
  for (std::int64_t a : axes) {
    const int axis = wrap_axis(op, a, rank);
    TL_CHECK(!(mask >> axis & 1u), ValueError, op, "axis ", axis, " appears twice in ", axes);
    mask |= 1u << axis;
  }
  return rank == 0 ? 0 : mask;
}

Tensor reduce(ReduceOp kind, const char* op, const Tensor& x, std::uint32_t axes, DType dtype, double correction) {
  const Placed<1> in(op, x);
  Dims sizes = x.sizes();
  for (int i = 0; i < sizes.size(); ++i)
    if (axes >> i & 1u) sizes[i] = 1;
  Tensor out = make_tensor(sizes, dtype, in.device);
  TL_CALL(in, reduce, kind, out.raw(), in.view(0), axes, correction);
  return out;
}

Tensor drop_axes(const Tensor& x, std::uint32_t axes) {
  Dims sizes;
  for (int i = 0; i < x.dim(); ++i)
    if (!(axes >> i & 1u)) sizes.push_back(x.sizes()[i]);
  return sizes.size() == x.dim() ? x : view(x, sizes);
}

Tensor arg_reduce(ArgOp kind, const Tensor& x, std::optional<int> axis, ReduceOptions options) {
  const char* op = kind == ArgOp::argmax ? "ArgMax" : "ArgMin";
  const Tensor from = axis && x.dim() > 0 ? x : x.detach().reshape({-1});
  const int at = axis ? wrap_axis(op, *axis, x.dim()) : 0;
  TL_CHECK(from.sizes()[at] > 0, ShapeError, op, "the reduced axis ", at, " of shape ", x.sizes(),
           " is empty: it has no largest or smallest element");
  const Placed<1> in(op, from);
  Dims sizes = from.sizes();
  sizes[at] = 1;
  const Tensor out = make_tensor(sizes, kInt64, in.device);
  TL_CALL(in, arg_reduce, kind, out.raw(), in.view(0), at);
  if (!axis) return options.keepdim ? out.reshape(Dims::filled(x.dim(), 1)) : out.reshape({});
  return options.keepdim && x.dim() > 0 ? out : squeeze(out, at).reshape(x.dim() == 0 ? Dims{} : squeeze(out, at).sizes());
}

}  // namespace tensorlite::detail
