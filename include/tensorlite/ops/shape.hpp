// L3: views (slice, permute, reshape, ...) and ops that rearrange elements (concatenate, split, flip, pad).
// Views share their base's memory; a gradient through a view is a new tensor. Axes may be negative.
#pragma once

#include <tensorlite/autograd.hpp>

#include <algorithm>
#include <limits>

namespace tensorlite {

// --------------------------------------------------------------------------------------------------------------------- views

namespace detail {
/// Zeros of these sizes with g at the slice; the gradient of slice.
Tensor unslice(const Tensor& g, const Dims& sizes, int axis, std::int64_t begin, std::int64_t step);

/// The size written as -1 is worked out. Throws ShapeError.
inline Dims resolve_sizes(const char* op, Dims sizes, std::int64_t count) {
  check_count(op, sizes);
  int unknown = -1;
  std::int64_t known = 1;
  for (int i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == -1) {
      TL_CHECK(unknown < 0, ShapeError, op, "only one size may be -1, got ", sizes);
      unknown = i;
    } else {
      TL_CHECK(sizes[i] >= 0, ShapeError, op, "a negative size in ", sizes);
      known *= sizes[i];
    }
  }
  if (unknown >= 0) {
    TL_CHECK(known != 0 && count % known == 0, ShapeError, op, count, " elements cannot be arranged as ", sizes);
    sizes[unknown] = count / known;
  }
  TL_CHECK(sizes.product() == count, ShapeError, op, count, " elements cannot be arranged as ", sizes);
  return sizes;
}

/// Strides that show a view's elements under other sizes without moving them; nothing when there are none.
TL_API std::optional<Dims> strides_for(const View& view, const Dims& sizes);
}  // namespace detail

/// Elements begin, begin + step, ... before end along an axis. A view; a negative step (end then counts downwards, default past the first
/// element) gives a copy. Bounds are clipped as in Python. Throws IndexError (axis), ValueError (step 0).
inline Tensor slice(const Tensor& x, int axis, std::int64_t begin, std::optional<std::int64_t> end = {}, std::int64_t step = 1);

/// The axes in another order. A view. Throws ShapeError unless `axes` names every axis once.
inline Tensor permute(const Tensor& x, const Dims& axes) {
  TL_CHECK(axes.size() == x.dim(), ShapeError, "permute", "axes ", axes, " for a tensor of shape ", x.sizes());
  Dims sizes, strides, inverse = axes;
  std::uint32_t seen = 0;
  for (int i = 0; i < axes.size(); ++i) {
    const int axis = detail::wrap_axis("permute", axes[i], x.dim());
    TL_CHECK(!(seen >> axis & 1u), ShapeError, "permute", "axis ", axis, " appears twice in ", axes);
    seen |= 1u << axis;
    sizes.push_back(x.sizes()[axis]);
    strides.push_back(x.strides()[axis]);
    inverse[axis] = i;
  }
  return detail::record("Transpose", detail::make_view(x, sizes, strides), {x}, {},
                        [inverse](const BackwardContext&, const Tensor& g) { return Gradients{permute(g, inverse)}; });
}

/// Two axes exchanged. A view.
inline Tensor transpose(const Tensor& x, int axis0, int axis1) {
  Dims axes;
  for (int i = 0; i < x.dim(); ++i) axes.push_back(i);
  std::swap(axes[detail::wrap_axis("transpose", axis0, x.dim())], axes[detail::wrap_axis("transpose", axis1, x.dim())]);
  return permute(x, axes);
}

/// The same elements under other sizes; one size may be -1. A view. Throws ShapeError when the strides do not allow it: use reshape().
inline Tensor view(const Tensor& x, const Dims& sizes) {
  const Dims resolved = detail::resolve_sizes("view", sizes, x.numel());
  const std::optional<Dims> strides = detail::strides_for(x.raw(), resolved);
  TL_CHECK(strides, ShapeError, "view", "shape ", x.sizes(), " with strides ", x.strides(), " cannot be seen as ", resolved,
           " without a copy; use reshape()");
  const Dims before = x.sizes();
  return detail::record("Reshape", detail::make_view(x, resolved, *strides), {x}, {}, [before](const BackwardContext&, const Tensor& g) {
    return Gradients{detail::strides_for(g.raw(), before) ? view(g, before) : view(g.contiguous(), before)};
  });
}

/// view() where possible, else a copy.
inline Tensor reshape(const Tensor& x, const Dims& sizes) {
  const Dims resolved = detail::resolve_sizes("reshape", sizes, x.numel());
  if (resolved == x.sizes()) return x;
  return view(detail::strides_for(x.raw(), resolved) ? x : x.contiguous(), resolved);
}

/// Axes begin..end (both included) as one.
inline Tensor flatten(const Tensor& x, int begin = 0, int end = -1) {
  if (x.dim() == 0) return reshape(x, {1});
  const int first = detail::wrap_axis("flatten", begin, x.dim()), last = detail::wrap_axis("flatten", end, x.dim());
  TL_CHECK(first <= last, IndexError, "flatten", "axis ", begin, " comes after axis ", end);
  Dims sizes;
  for (int i = 0; i < first; ++i) sizes.push_back(x.sizes()[i]);
  std::int64_t joined = 1;
  for (int i = first; i <= last; ++i) joined *= x.sizes()[i];
  sizes.push_back(joined);
  for (int i = last + 1; i < x.dim(); ++i) sizes.push_back(x.sizes()[i]);
  return reshape(x, sizes);
}

/// Size-1 axes (and new leading ones) repeated without a copy; -1 keeps an axis's size. A view. Throws ShapeError.
inline Tensor expand(const Tensor& x, const Dims& sizes) {
  const int added = sizes.size() - x.dim();
  TL_CHECK(added >= 0, ShapeError, "expand", "shape ", x.sizes(), " has more axes than ", sizes);
  Dims to = sizes, strides = Dims::filled(sizes.size(), 0);
  for (int i = 0; i < sizes.size(); ++i) {
    TL_CHECK(to[i] >= 0 || (to[i] == -1 && i >= added), ShapeError, "expand", "size ", to[i], " at axis ", i, " of ", sizes);
    if (i < added) continue;
    const std::int64_t from = x.sizes()[i - added];
    if (to[i] == -1) to[i] = from;
    TL_CHECK(from == to[i] || from == 1, ShapeError, "expand", "shape ", x.sizes(), " cannot be expanded to ", sizes, ": axis ", i,
             " has size ", from);
    strides[i] = from == to[i] ? x.strides()[i - added] : 0;
  }
  detail::check_count("expand", to);
  // The engine sums the gradient over the repeated axes.
  return detail::record("BroadcastTo", detail::make_view(x, to, strides), {x}, {},
                        [](const BackwardContext&, const Tensor& g) { return Gradients{g}; });
}
inline Tensor broadcast_to(const Tensor& x, const Dims& sizes) { return expand(x, sizes); }

inline Tensor unsqueeze(const Tensor& x, int axis) {
  const int at = detail::wrap_axis("unsqueeze", axis, x.dim() + 1);
  Dims sizes = x.sizes();
  sizes.insert(at, 1);
  return view(x, sizes);
}
/// Without the axes of size 1.
inline Tensor squeeze(const Tensor& x) {
  Dims sizes;
  for (std::int64_t n : x.sizes())
    if (n != 1) sizes.push_back(n);
  return view(x, sizes);
}
/// Without this axis if it has size 1.
inline Tensor squeeze(const Tensor& x, int axis) {
  const int at = detail::wrap_axis("squeeze", axis, x.dim());
  if (x.dim() == 0 || x.sizes()[at] != 1) return x;
  Dims sizes = x.sizes();
  sizes.erase(at);
  return view(x, sizes);
}

inline Tensor flip(const Tensor& x, const Dims& axes);

inline Tensor slice(const Tensor& x, int axis, std::int64_t begin, std::optional<std::int64_t> end, std::int64_t step) {
  const int at = detail::wrap_axis("slice", axis, x.dim());
  TL_CHECK(x.dim() > 0, IndexError, "slice", "a 0-d tensor has no axis to slice");
  TL_CHECK(step != 0, ValueError, "slice", "step must not be 0");
  const std::int64_t n = x.sizes()[at];
  step = std::max(step, -std::numeric_limits<std::int64_t>::max());
  if (step < 0) {  // element i of the result is element n - 1 - i' of the flipped tensor
    const std::int64_t first = begin < 0 ? begin + n : begin;
    const std::int64_t last = !end ? -1 : *end < 0 ? *end + n : *end;
    return slice(flip(x, {at}), at, std::max<std::int64_t>(n - 1 - first, 0), std::max<std::int64_t>(n - 1 - last, 0), -step);
  }
  const auto clip = [n](std::int64_t i) { return std::clamp<std::int64_t>(i < 0 ? i + n : i, 0, n); };
  const std::int64_t first = clip(begin), last = clip(end.value_or(n));
  Dims sizes = x.sizes(), strides = x.strides();
  sizes[at] = last > first ? (last - first - 1) / step + 1 : 0;
  strides[at] *= step;
  const Dims before = x.sizes();
  return detail::record("StridedSlice", detail::make_view(x, sizes, strides, first * x.strides()[at]), {x}, {},
                        [before, at, first, step](const BackwardContext&, const Tensor& g) {
                          return Gradients{detail::unslice(g, before, at, first, step)};
                        });
}

/// `length` elements from `begin` on. A view. Throws IndexError when they are not all there.
inline Tensor narrow(const Tensor& x, int axis, std::int64_t begin, std::int64_t length) {
  const std::int64_t n = x.size(axis);
  TL_CHECK(begin >= 0 && length >= 0 && length <= n - begin, IndexError, "narrow", length, " elements from ", begin,
           " on of an axis of size ", n);
  return slice(x, axis, begin, begin + length);
}

/// The tensor at one index of an axis, which goes away. A view. Throws IndexError.
inline Tensor select(const Tensor& x, int axis, std::int64_t index) {
  const int at = detail::wrap_axis("select", axis, x.dim());
  TL_CHECK(x.dim() > 0, IndexError, "select", "a 0-d tensor has no axis to select from");
  const std::int64_t n = x.sizes()[at], i = index < 0 ? index + n : index;
  TL_CHECK(i >= 0 && i < n, IndexError, "select", "index ", index, " is out of range for axis ", at, " of size ", n);
  return squeeze(slice(x, at, i, i + 1), at);
}

inline Tensor detail::unslice(const Tensor& g, const Dims& sizes, int axis, std::int64_t begin, std::int64_t step) {
  Tensor out = zeros(sizes, {.dtype = g.dtype(), .device = g.device()});
  const std::int64_t end = begin + (g.sizes()[axis] - 1) * step + 1;
  if (g.numel() > 0) {
    NoGradGuard guard;
    slice(out, axis, begin, end, step).copy_(g);
  }
  return record("StridedSliceGrad", out, {g}, {}, [axis, begin, end, step](const BackwardContext&, const Tensor& gg) {
    return Gradients{slice(gg, axis, begin, std::max(begin, end), step)};
  });
}

// --------------------------------------------------------------------------------------------------------------- rearranging

namespace detail {
/// Where the tensors of a list go, and their common dtype. Throws ValueError for an empty list.
inline DType common_dtype(const char* op, std::span<const Tensor> tensors) {
  TL_CHECK(!tensors.empty(), ValueError, op, "the list of tensors is empty");
  DType dtype = tensors[0].dtype();
  for (const Tensor& t : tensors) dtype = promote(dtype, t.dtype());
  return dtype;
}
}  // namespace detail

/// The tensors one after another along an axis; the other sizes are equal. Throws ShapeError, ValueError (empty list).
inline Tensor concatenate(const std::vector<Tensor>& tensors, int axis = 0) {
  const DType dtype = detail::common_dtype("concatenate", tensors);
  const int at = detail::wrap_axis("concatenate", axis, tensors[0].dim());
  TL_CHECK(tensors[0].dim() > 0, ShapeError, "concatenate", "0-d tensors cannot be concatenated; use stack()");
  Dims sizes = tensors[0].sizes();
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    Dims expected = sizes;
    if (tensors[i].dim() == sizes.size()) expected[at] = tensors[i].sizes()[at];
    TL_CHECK(expected == tensors[i].sizes(), ShapeError, "concatenate", "tensor ", i, " of shape ", tensors[i].sizes(), " does not fit to ",
             tensors[0].sizes(), " along axis ", at);
    sizes[at] += tensors[i].sizes()[at];
  }
  const detail::Placed<1> first("ConcatV2", tensors[0]);
  Tensor out = detail::make_tensor(sizes, dtype, first.device);
  {
    NoGradGuard guard;
    std::int64_t begin = 0;
    for (const Tensor& t : tensors) {
      narrow(out, at, begin, t.sizes()[at]).copy_(t);
      begin += t.sizes()[at];
    }
  }
  const std::vector<detail::TensorRef> inputs(tensors.begin(), tensors.end());
  return detail::record("ConcatV2", out, inputs, {}, [at](const BackwardContext& c, const Tensor& g) {
    Gradients grads;
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < c.node().edges.size(); ++i) {
      const detail::Edge& edge = c.node().edges[i];
      grads.push_back(edge.needed() ? narrow(g, at, begin, edge.sizes[at]) : Tensor());
      begin += edge.sizes[at];
    }
    return grads;
  });
}

/// Tensors of one shape along a new axis. Throws ShapeError, ValueError (empty list).
inline Tensor stack(const std::vector<Tensor>& tensors, int axis = 0) {
  detail::common_dtype("stack", tensors);
  std::vector<Tensor> slices;
  for (const Tensor& t : tensors) {
    TL_CHECK(t.sizes() == tensors[0].sizes(), ShapeError, "stack", "shapes ", tensors[0].sizes(), " and ", t.sizes(), " differ");
    slices.push_back(unsqueeze(t, axis));
  }
  return concatenate(slices, axis);
}

/// Views of `length` along an axis, the last one shorter when it does not divide. Throws ValueError.
inline std::vector<Tensor> split(const Tensor& x, std::int64_t length, int axis = 0) {
  TL_CHECK(length > 0, ValueError, "split", "length must be positive, it is ", length);
  std::vector<Tensor> parts;
  const std::int64_t n = x.size(axis);
  for (std::int64_t begin = 0; begin < n || parts.empty(); begin += length)
    parts.push_back(slice(x, axis, begin, std::min(begin + length, n)));
  return parts;
}
/// Views of these lengths, which add up to the axis. Throws ShapeError.
inline std::vector<Tensor> split(const Tensor& x, const Dims& lengths, int axis = 0) {
  std::int64_t total = 0;
  for (std::int64_t n : lengths) total += n;
  TL_CHECK(total == x.size(axis), ShapeError, "split", "lengths ", lengths, " do not add up to size ", x.size(axis));
  std::vector<Tensor> parts;
  std::int64_t begin = 0;
  for (std::int64_t n : lengths) {
    parts.push_back(narrow(x, axis, begin, n));
    begin += n;
  }
  return parts;
}

/// The elements of these axes in reverse order. A copy.
inline Tensor flip(const Tensor& x, const Dims& axes) {
  const detail::Placed<1> in("ReverseV2", x);
  View reversed = in.view(0);
  std::int64_t offset = 0;
  std::uint32_t seen = 0;
  for (std::int64_t a : axes) {
    const int at = detail::wrap_axis("flip", a, x.dim());
    TL_CHECK(x.dim() > 0, IndexError, "flip", "a 0-d tensor has no axis to flip");
    TL_CHECK(!(seen >> at & 1u), ValueError, "flip", "axis ", at, " appears twice in ", axes);
    seen |= 1u << at;
    offset += (reversed.sizes[at] - 1) * reversed.strides[at];
    reversed.strides[at] = -reversed.strides[at];
  }
  Tensor out = detail::make_tensor(x.sizes(), x.dtype(), in.device);
  if (x.numel() > 0) {
    reversed.data = static_cast<std::byte*>(reversed.data) + offset * size_of(x.dtype());
    TL_CALL(in, copy, out.raw(), reversed);
  }
  return detail::record("ReverseV2", out, {x}, {}, [axes](const BackwardContext&, const Tensor& g) { return Gradients{flip(g, axes)}; });
}

/// `value` around x: `widths` holds before, after of each of the last axes, in axis order ({1, 2}: the last axis; {1, 1, 2, 2}: the last
/// two). Throws ShapeError for an odd count, too many pairs or a negative width.
inline Tensor pad(const Tensor& x, const Dims& widths, Scalar value = 0) {
  TL_CHECK(widths.size() % 2 == 0 && widths.size() / 2 <= x.dim(), ShapeError, "pad", "widths ", widths, " for a tensor of shape ",
           x.sizes(), ": two per axis, for the last axes");
  const int first = x.dim() - widths.size() / 2;
  Dims sizes = x.sizes();
  for (int i = 0; i < widths.size(); ++i) {
    TL_CHECK(widths[i] >= 0, ShapeError, "pad", "a negative width in ", widths, "; use slice() to cut");
    sizes[first + i / 2] += widths[i];
  }
  const auto inside = [first](Tensor t, const Dims& w, const Dims& inner) {
    for (int i = 0; i < w.size() / 2; ++i) t = narrow(t, first + i, w[2 * i], inner[first + i]);
    return t;
  };
  const detail::Placed<1> in("PadV2", x);
  Tensor out = full(sizes, value, {.dtype = x.dtype(), .device = in.device});
  {
    NoGradGuard guard;
    inside(out, widths, x.sizes()).copy_(in[0]);
  }
  const Dims inner = x.sizes();
  return detail::record("PadV2", out, {x}, {},
                        [inside, widths, inner](const BackwardContext&, const Tensor& g) { return Gradients{inside(g, widths, inner)}; });
}

// ------------------------------------------------------------------------------------------------------------------- methods
inline Tensor Tensor::slice(int axis, std::int64_t begin, std::optional<std::int64_t> end, std::int64_t step) const {
  return tensorlite::slice(*this, axis, begin, end, step);
}
inline Tensor Tensor::select(int axis, std::int64_t index) const { return tensorlite::select(*this, axis, index); }
inline Tensor Tensor::narrow(int axis, std::int64_t begin, std::int64_t length) const {
  return tensorlite::narrow(*this, axis, begin, length);
}
inline Tensor Tensor::permute(const Dims& axes) const { return tensorlite::permute(*this, axes); }
inline Tensor Tensor::transpose(int axis0, int axis1) const { return tensorlite::transpose(*this, axis0, axis1); }
inline Tensor Tensor::t() const {
  TL_CHECK(dim() <= 2, ShapeError, "t", "needs at most 2 axes, the tensor has shape ", sizes());
  return dim() < 2 ? *this : tensorlite::transpose(*this, 0, 1);
}
inline Tensor Tensor::reshape(const Dims& sizes) const { return tensorlite::reshape(*this, sizes); }
inline Tensor Tensor::view(const Dims& sizes) const { return tensorlite::view(*this, sizes); }
inline Tensor Tensor::flatten(int begin, int end) const { return tensorlite::flatten(*this, begin, end); }
inline Tensor Tensor::expand(const Dims& sizes) const { return tensorlite::expand(*this, sizes); }
inline Tensor Tensor::squeeze() const { return tensorlite::squeeze(*this); }
inline Tensor Tensor::squeeze(int axis) const { return tensorlite::squeeze(*this, axis); }
inline Tensor Tensor::unsqueeze(int axis) const { return tensorlite::unsqueeze(*this, axis); }

}  // namespace tensorlite
