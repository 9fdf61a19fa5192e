// Out-of-line part of ops/elementwise.hpp: dtype rules, broadcasting and the fused backward of unary ops.
#include <tensorlite/ops/elementwise.hpp>
#include <tensorlite/ops/reduce.hpp>

namespace tensorlite::detail {
namespace {

/// The dtype a unary op computes in.
DType compute_dtype(UnaryOp op, DType dtype) { return is_floating(dtype) || accepts_integers(op) ? dtype : kFloat64; }

Tensor convert(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  Tensor out = make_tensor(x.sizes(), dtype, x.device());
  TL_CALL((OpPlace{"Cast", x.device()}), copy, out.raw(), x.raw());
  return out;
}

bool is_logical(BinaryOp op) { return op == BinaryOp::LogicalAnd || op == BinaryOp::LogicalOr || op == BinaryOp::LogicalXor; }

/// The dtype a binary op computes in. Throws DTypeError for a pair that has none.
DType compute_dtype(BinaryOp op, DType common) {
  if (is_logical(op) || gives_bool(op)) return common;
  if (common == kBool) {
    const bool bitwise = op == BinaryOp::BitwiseAnd || op == BinaryOp::BitwiseOr || op == BinaryOp::BitwiseXor;
    TL_CHECK(op != BinaryOp::Subtract, DTypeError, name_of(op),
             "bool tensors have no difference; use logical_xor, or convert one with to()");
    if (bitwise) return kBool;
    return accepts_integers(op) ? kInt64 : kFloat64;
  }
  if (is_floating(common)) {
    TL_CHECK(accepts_floats(op), DTypeError, name_of(op), "needs integers or bool, got ", common);
    return common;
  }
  return accepts_integers(op) ? common : kFloat64;
}

/// Does an integer dtype hold this number?
bool holds(DType dtype, std::int64_t value) {
  if (dtype == kUInt8) return value >= 0 && value <= 255;
  return dtype != kInt32 || value == static_cast<std::int32_t>(value);
}

/// A number's dtype beside a tensor: it never widens within its kind, a fraction makes an integer tensor float64. Comparisons are exact.
DType promote_scalar(BinaryOp op, DType dtype, Scalar s) {
  if (is_floating(dtype)) return dtype;
  if (s.is_integer && gives_bool(op) && !holds(dtype, s.integer)) return kInt64;
  if (!s.is_integer) return kFloat64;
  return dtype == kBool ? kInt64 : dtype;
}

Gradients unary_gradient(const BackwardContext& c, const Tensor& g, UnaryOp op, UnaryParams params, UnaryGradient gradient) {
  if (!gradient) return {Tensor()};
  const Tensor x = c.saved(0), y = c.saved(1);
  if (c.recording()) return {gradient(g, x, y, params)};
  Tensor out = make_tensor(g.sizes(), g.dtype(), g.device());
  const std::string name = std::string(name_of(op)) + "Grad";
  TL_CALL((OpPlace{name.c_str(), g.device()}), unary_backward, op, out.raw(), g.raw(), x.defined() ? x.raw() : View(),
          y.defined() ? y.raw() : View(), params);
  return {out};
}

}  // namespace

Tensor unary(UnaryOp op, const Tensor& x, UnaryParams params, UnaryGradient gradient) {
  const Placed<1> in(name_of(op), x);
  const DType dtype = compute_dtype(op, x.dtype());
  Tensor out = make_tensor(x.sizes(), gives_bool(op) ? kBool : dtype, in.device);
  if (x.dtype() == dtype) TL_CALL(in, unary, op, out.raw(), in.view(0), params);
  else TL_CALL(in, unary, op, out.raw(), convert(in[0], dtype).raw(), params);
  if (gives_bool(op)) return out;
  const Tensor none;
  // The input as given is what is saved: an in-place change of it must be seen.
  return record(name_of(op), out, {x}, {derivative_uses_input(op) ? x : none, derivative_uses_result(op) ? out : none},
                [op, params, gradient](const BackwardContext& c, const Tensor& g) { return unary_gradient(c, g, op, params, gradient); });
}

void unary_(UnaryOp op, Tensor& x, UnaryParams params) {
  TL_CHECK(compute_dtype(op, x.dtype()) == x.dtype(), DTypeError, name_of(op), "in place needs a floating tensor, this one is ", x.dtype());
  TL_CALL((OpPlace{name_of(op), x.device()}), unary, op, x.raw(), x.raw(), params);
  bump_version(x);
}

Tensor binary(BinaryOp op, const Tensor& a, const Tensor& b) {
  const Placed<2> in(name_of(op), a, b);
  const View &left = in.view(0), &right = in.view(1);
  // Nothing to convert or broadcast: the shortest way, which is what small tensors cost.
  if (left.dtype == right.dtype && is_floating(left.dtype) && accepts_floats(op) && left.sizes == right.sizes) {
    Tensor out = make_tensor(left.sizes, gives_bool(op) ? kBool : left.dtype, in.device);
    TL_CALL(in, binary, op, out.raw(), left, right);
    return out;
  }
  const DType dtype = compute_dtype(op, promote(a.dtype(), b.dtype()));
  const Dims sizes = broadcast_sizes(name_of(op), a.sizes(), b.sizes());
  const Tensor x = convert(in[0], dtype), y = convert(in[1], dtype);
  Tensor out = make_tensor(sizes, gives_bool(op) ? kBool : dtype, in.device);
  TL_CALL(in, binary, op, out.raw(), broadcast_view(x.raw(), sizes), broadcast_view(y.raw(), sizes));
  return out;
}

Tensor binary(BinaryOp op, const Tensor& a, Scalar b, ScalarSide side) {
  const Placed<1> in(name_of(op), a);
  const DType dtype = compute_dtype(op, promote_scalar(op, a.dtype(), b));
  const Tensor x = convert(in[0], dtype);
  Tensor out = make_tensor(a.sizes(), gives_bool(op) ? kBool : dtype, in.device);
  TL_CALL(in, binary_scalar, op, out.raw(), x.raw(), b, side);
  return out;
}

void binary_(BinaryOp op, Tensor& a, const Tensor& b) {
  TL_CHECK(b.defined(), ValueError, name_of(op), "the other operand is an undefined tensor");
  const DType dtype = compute_dtype(op, promote(a.dtype(), b.dtype()));
  TL_CHECK(is_floating(a.dtype()) || dtype == a.dtype(), DTypeError, name_of(op), "a ", dtype, " result does not fit in place into a ",
           a.dtype(), " tensor");
  TL_CHECK(broadcast_sizes(name_of(op), a.sizes(), b.sizes()) == a.sizes(), ShapeError, name_of(op), "an operand of shape ", b.sizes(),
           " does not fit in place into shape ", a.sizes());
  Tensor other = b.detach();
  if (other.device() != a.device()) {
    record_copy(name_of(op), 1, b.device(), a.device(), b.nbytes());
    other = other.to(a.device());
  }
  other = convert(other, a.dtype());
  // Elements of an overlapping operand would be read after they were overwritten, unless both views are the same.
  const bool same = other.raw().data == a.raw().data && other.sizes() == a.sizes() && other.strides() == a.strides();
  if (other.shares_storage(a) && !same) other = other.clone();
  TL_CALL((OpPlace{name_of(op), a.device()}), binary, op, a.raw(), a.raw(), broadcast_view(other.raw(), a.sizes()));
  bump_version(a);
}

void binary_(BinaryOp op, Tensor& a, Scalar b) {
  const DType dtype = compute_dtype(op, promote_scalar(op, a.dtype(), b));
  TL_CHECK(dtype == a.dtype(), DTypeError, name_of(op), "a ", dtype, " result does not fit in place into a ", a.dtype(), " tensor");
  TL_CALL((OpPlace{name_of(op), a.device()}), binary_scalar, op, a.raw(), a.raw(), b, ScalarSide::right);
  bump_version(a);
}

Tensor sum_to(const Tensor& x, const Dims& sizes, const char* op) {
  if (x.sizes() == sizes) return x;
  const int added = x.dim() - sizes.size();
  bool fits = added >= 0;
  Dims axes;
  for (int i = 0; fits && i < x.dim(); ++i) {
    if (i < added) axes.push_back(i);
    else if (x.sizes()[i] != sizes[i - added]) {
      fits = sizes[i - added] == 1;
      axes.push_back(i);
    }
  }
  TL_CHECK(fits, AutogradError, op, "a gradient of shape ", x.sizes(), " for an input of shape ", sizes);
  return sum(x, axes, {.keepdim = true}).reshape(sizes);
}

}  // namespace tensorlite::detail
