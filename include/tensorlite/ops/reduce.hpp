// L3: reductions over any set of axes, arg reductions, cumsum, statistics.
// No axes given: over all. Integer sums and products are int64, means of integers float64 (as NumPy). NaN propagates. Empty axes: sum 0,
// prod 1, mean NaN, any false, all true; max, min, argmax and argmin throw ShapeError. float32 sums are blocked: 2e7 ones sum to 2e7.
#pragma once

#include <tensorlite/autocast.hpp>
#include <tensorlite/ops/elementwise.hpp>
#include <tensorlite/ops/shape.hpp>

#include <limits>

namespace tensorlite {

struct ReduceOptions {
  bool keepdim = false;  ///< keep reduced axes with size 1
};

namespace detail {
/// Bit i is set for axis i; all bits for no axes. Throws IndexError, ValueError (an axis twice).
TL_API std::uint32_t axes_mask(const char* op, const Dims& axes, int rank);
/// The reduction with its axes kept as size 1, not recorded. `dtype` is that of the result.
TL_API Tensor reduce(ReduceOp kind, const char* op, const Tensor& x, std::uint32_t axes, DType dtype, double correction = 0);
/// `x` without the masked axes.
TL_API Tensor drop_axes(const Tensor& x, std::uint32_t axes);
inline Tensor finish_reduce(const Tensor& kept, std::uint32_t axes, ReduceOptions options) {
  return options.keepdim ? kept : drop_axes(kept, axes);
}
inline std::int64_t reduced_count(const Dims& sizes, std::uint32_t axes) {
  std::int64_t count = 1;
  for (int i = 0; i < sizes.size(); ++i)
    if (axes >> i & 1u) count *= sizes[i];
  return count;
}
inline DType sum_dtype(DType dtype) { return is_floating(dtype) ? dtype : kInt64; }
inline DType mean_dtype(DType dtype) { return is_floating(dtype) ? dtype : kFloat64; }
}  // namespace detail

inline Tensor sum(const Tensor& x, const Dims& axes = {}, ReduceOptions options = {}) {
  if (detail::raises(x)) return sum(detail::raised(x), axes, options);
  const std::uint32_t mask = detail::axes_mask("sum", axes, x.dim());
  const Dims sizes = x.sizes();
  const Tensor kept = detail::record("Sum", detail::reduce(ReduceOp::sum, "Sum", x, mask, detail::sum_dtype(x.dtype())), {x}, {},
                                     [sizes](const BackwardContext&, const Tensor& g) { return Gradients{expand(g, sizes)}; });
  return detail::finish_reduce(kept, mask, options);
}

inline Tensor mean(const Tensor& x, const Dims& axes = {}, ReduceOptions options = {}) {
  if (detail::raises(x)) return mean(detail::raised(x), axes, options);
  const std::uint32_t mask = detail::axes_mask("mean", axes, x.dim());
  const Tensor from = is_floating(x.dtype()) ? x : x.to(kFloat64);
  const Dims sizes = x.sizes();
  const double scale = 1.0 / static_cast<double>(detail::reduced_count(sizes, mask));
  const Tensor kept =
      detail::record("Mean", detail::reduce(ReduceOp::mean, "Mean", from, mask, from.dtype()), {from}, {},
                     [sizes, scale](const BackwardContext&, const Tensor& g) { return Gradients{expand(g * scale, sizes)}; });
  return detail::finish_reduce(kept, mask, options);
}

/// Largest value; equal largest values share the gradient.
Tensor max(const Tensor& x, const Dims& axes = {}, ReduceOptions options = {});
Tensor min(const Tensor& x, const Dims& axes = {}, ReduceOptions options = {});

namespace detail {
inline Tensor extremum(ReduceOp kind, const char* op, const Tensor& x, const Dims& axes, ReduceOptions options) {
  const std::uint32_t mask = axes_mask(op, axes, x.dim());
  TL_CHECK(reduced_count(x.sizes(), mask) > 0, ShapeError, op, "the reduced axes of shape ", x.sizes(), " are empty: there is no ", op);
  const Tensor value = reduce(kind, kind == ReduceOp::max ? "Max" : "Min", x, mask, x.dtype());
  const Tensor kept = record(op, value, {x}, {x, value}, [mask](const BackwardContext& c, const Tensor& g) {
    const Tensor in = c.saved(0), best = c.saved(1);
    // NaN is equal to nothing, yet it is what won.
    const Tensor chosen = logical_or(equal(in, best), logical_and(isnan(in), isnan(best))).to(g.dtype());
    Dims over;
    for (int i = 0; i < in.dim(); ++i)
      if (mask >> i & 1u) over.push_back(i);
    return Gradients{over.empty() ? g * chosen : chosen * (g / sum(chosen, over, {.keepdim = true}))};
  });
  return finish_reduce(kept, mask, options);
}
}  // namespace detail

inline Tensor max(const Tensor& x, const Dims& axes, ReduceOptions options) {
  return detail::extremum(ReduceOp::max, "max", x, axes, options);
}
inline Tensor min(const Tensor& x, const Dims& axes, ReduceOptions options) {
  return detail::extremum(ReduceOp::min, "min", x, axes, options);
}

/// Product; the gradient is right with zeros among the elements, too.
inline Tensor prod(const Tensor& x, const Dims& axes = {}, ReduceOptions options = {}) {
  if (detail::raises(x)) return prod(detail::raised(x), axes, options);
  const std::uint32_t mask = detail::axes_mask("prod", axes, x.dim());
  const Tensor value = detail::reduce(ReduceOp::prod, "Prod", x, mask, detail::sum_dtype(x.dtype()));
  const Tensor kept = detail::record("Prod", value, {x}, {x}, [mask](const BackwardContext& c, const Tensor& g) {
    Dims over;
    const Tensor in = c.saved(0);
    for (int i = 0; i < in.dim(); ++i)
      if (mask >> i & 1u) over.push_back(i);
    if (over.empty()) return Gradients{g};
    // d prod / d x_i is the product of the others: of the non-zero ones, when x_i is the only zero; 0 when another zero is among them.
    const Tensor is_zero = equal(in, 0), zeros_there = sum(is_zero, over, {.keepdim = true}), safe = masked_fill(in, is_zero, 1);
    const Tensor others = prod(safe, over, {.keepdim = true});
    const Tensor alone = logical_and(is_zero, equal(zeros_there, 1)), none = equal(zeros_there, 0);
    return Gradients{g * where(logical_or(alone, none), others / safe, 0)};
  });
  return detail::finish_reduce(kept, mask, options);
}

/// bool: is any (every) element other than zero?
inline Tensor any(const Tensor& x, const Dims& axes = {}, ReduceOptions options = {}) {
  const std::uint32_t mask = detail::axes_mask("any", axes, x.dim());
  return detail::finish_reduce(detail::reduce(ReduceOp::any, "Any", x.dtype() == kBool ? x : x != 0, mask, kBool), mask, options);
}
inline Tensor all(const Tensor& x, const Dims& axes = {}, ReduceOptions options = {}) {
  const std::uint32_t mask = detail::axes_mask("all", axes, x.dim());
  return detail::finish_reduce(detail::reduce(ReduceOp::all, "All", x.dtype() == kBool ? x : x != 0, mask, kBool), mask, options);
}

struct VarOptions {
  double correction = 1;  ///< divide by the count minus this; 1: unbiased, as in PyTorch; 0: as in NumPy and TensorFlow
  bool keepdim = false;
};
/// Variance, by two passes. NaN when the count does not exceed the correction.
inline Tensor var(const Tensor& x, const Dims& axes = {}, VarOptions options = {}) {
  if (detail::raises(x)) return var(detail::raised(x), axes, options);
  const std::uint32_t mask = detail::axes_mask("var", axes, x.dim());
  const Tensor from = is_floating(x.dtype()) ? x : x.to(kFloat64);
  const double scale = 2.0 / (static_cast<double>(detail::reduced_count(x.sizes(), mask)) - options.correction);
  const Tensor value = detail::reduce(ReduceOp::var, "Var", from, mask, from.dtype(), options.correction);
  const Tensor kept = detail::record("Var", value, {from}, {from}, [mask, scale](const BackwardContext& c, const Tensor& g) {
    const Tensor in = c.saved(0);
    Dims over;
    for (int i = 0; i < in.dim(); ++i)
      if (mask >> i & 1u) over.push_back(i);
    return Gradients{over.empty() ? Tensor() : g * (in - mean(in, over, {.keepdim = true})) * scale};
  });
  return detail::finish_reduce(kept, mask, {.keepdim = options.keepdim});
}
/// Standard deviation; its gradient is 0 where all values are equal.
inline Tensor std(const Tensor& x, const Dims& axes = {}, VarOptions options = {}) {
  const Tensor variance = var(x, axes, options), root = sqrt(variance.detach());
  return detail::record("Std", root, {variance}, {root}, [](const BackwardContext& c, const Tensor& g) {
    const Tensor twice = c.saved(0) * 2.0;
    return Gradients{g / masked_fill(twice, equal(twice, 0), std::numeric_limits<double>::infinity())};
  });
}

/// Euclidean norm; its gradient at the zero vector is 0.
inline Tensor norm(const Tensor& x, const Dims& axes = {}, ReduceOptions options = {}) {
  if (detail::raises(x)) return norm(detail::raised(x), axes, options);
  const std::uint32_t mask = detail::axes_mask("norm", axes, x.dim());
  const Tensor from = is_floating(x.dtype()) ? x : x.to(kFloat64);
  const Tensor value = detail::reduce(ReduceOp::norm2, "Norm", from, mask, from.dtype());
  const Tensor kept = detail::record("Norm", value, {from}, {from, value}, [](const BackwardContext& c, const Tensor& g) {
    const Tensor length = c.saved(1);
    return Gradients{c.saved(0) * (g / masked_fill(length, equal(length, 0), 1))};
  });
  return detail::finish_reduce(kept, mask, options);
}

/// log(sum(exp(x))), without overflow.
inline Tensor logsumexp(const Tensor& x, const Dims& axes = {}, ReduceOptions options = {}) {
  if (detail::raises(x)) return logsumexp(detail::raised(x), axes, options);
  const std::uint32_t mask = detail::axes_mask("logsumexp", axes, x.dim());
  const Tensor from = is_floating(x.dtype()) ? x : x.to(kFloat64);
  const Tensor value = detail::reduce(ReduceOp::logsumexp, "LogSumExp", from, mask, from.dtype());
  const Tensor kept = detail::record("LogSumExp", value, {from}, {from, value}, [](const BackwardContext& c, const Tensor& g) {
    const Tensor total = c.saved(1);  // all -inf: every weight is 0
    return Gradients{g * exp(c.saved(0) - masked_fill(total, isinf(total), 0))};
  });
  return detail::finish_reduce(kept, mask, options);
}

namespace detail {
/// No axis: over the flattened tensor.
TL_API Tensor arg_reduce(ArgOp kind, const Tensor& x, std::optional<int> axis, ReduceOptions options);
}  // namespace detail
/// Index of the largest (smallest) element, int64; the first of equals, the first NaN before all.
inline Tensor argmax(const Tensor& x, std::optional<int> axis = {}, ReduceOptions options = {}) {
  return detail::arg_reduce(ArgOp::argmax, x, axis, options);
}
inline Tensor argmin(const Tensor& x, std::optional<int> axis = {}, ReduceOptions options = {}) {
  return detail::arg_reduce(ArgOp::argmin, x, axis, options);
}

/// Running sums along an axis.
inline Tensor cumsum(const Tensor& x, int axis) {
  if (detail::raises(x)) return cumsum(detail::raised(x), axis);
  const detail::Placed<1> in("Cumsum", x);
  const int at = detail::wrap_axis("cumsum", axis, x.dim());
  const Tensor from = in[0].detach().to(detail::sum_dtype(x.dtype()));
  Tensor out = detail::make_tensor(x.sizes(), from.dtype(), in.device);
  if (x.dim() == 0) out.copy_(from);
  else TL_CALL(in, cumsum, out.raw(), from.raw(), at);
  return detail::record("Cumsum", out, {x}, {}, [at](const BackwardContext&, const Tensor& g) {
    if (g.dim() == 0) return Gradients{g};
    return Gradients{flip(cumsum(flip(g, {at}), at), {at})};
  });
}

// ------------------------------------------------------------------------------------------------------------------- methods
inline Tensor Tensor::sum() const { return tensorlite::sum(*this); }
inline Tensor Tensor::mean() const { return tensorlite::mean(*this); }
inline Tensor Tensor::max() const { return tensorlite::max(*this); }
inline Tensor Tensor::min() const { return tensorlite::min(*this); }
inline Tensor Tensor::argmax(int axis) const { return tensorlite::argmax(*this, axis); }

}  // namespace tensorlite
