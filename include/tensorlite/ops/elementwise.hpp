// L3: unary and binary arithmetic, comparisons, where, clamp; operators. Values are computed by the functors of elementwise.hpp; each
// function here gives the gradient in public ops, which double backward uses (a plain backward runs the functor's own derivative, fused).
//
// Shapes: binary operations broadcast as in NumPy. DTypes: promote(a, b); a C++ number is weak (float32 + 2.5 is float32, int64 + 2.5
// float64); operations that have no integer result (exp, divide, ...) give float64 for integers. Throws ShapeError (not broadcastable),
// DTypeError.
#pragma once

#include <tensorlite/autograd.hpp>

#include <cmath>

namespace tensorlite {

namespace detail {
/// d(loss)/dx from d(loss)/dy in public ops; x or y is undefined when the functor's derivative does not use it.
using UnaryGradient = Tensor (*)(const Tensor& g, const Tensor& x, const Tensor& y, UnaryParams p);
/// y = op(x), recorded. No gradient function: the op is flat (floor, sign) and its gradient is zero.
TL_API Tensor unary(UnaryOp op, const Tensor& x, UnaryParams params = {}, UnaryGradient gradient = nullptr);
/// x = op(x), not recorded.
TL_API void unary_(UnaryOp op, Tensor& x, UnaryParams params);
/// out = op(a, b), not recorded.
TL_API Tensor binary(BinaryOp op, const Tensor& a, const Tensor& b);
TL_API Tensor binary(BinaryOp op, const Tensor& a, Scalar b, ScalarSide side = ScalarSide::right);
/// a = op(a, b), not recorded; a keeps its dtype and shape. Throws DTypeError when the result has a wider kind of dtype.
TL_API void binary_(BinaryOp op, Tensor& a, const Tensor& b);
TL_API void binary_(BinaryOp op, Tensor& a, Scalar b);
/// Sums over the axes that broadcasting from `sizes` added. Throws AutogradError when the shapes do not fit.
TL_API Tensor sum_to(const Tensor& x, const Dims& sizes, const char* op = "sum_to");
template <class F> Tensor binary(BinaryOp op, const Tensor& a, const Tensor& b, std::initializer_list<TensorRef> saved, F gradient) {
  return record(name_of(op), binary(op, a, b), {a, b}, saved, gradient);
}
inline Gradients pass_gradient(const BackwardContext&, const Tensor& g) { return {g}; }
}  // namespace detail

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor log(const Tensor& x);

// ---------------------------------------------------------------------------------------------------------------- arithmetic

inline Tensor add(const Tensor& a, const Tensor& b) {
  return detail::binary(BinaryOp::Add, a, b, {}, [](const BackwardContext&, const Tensor& g) { return Gradients{g, g}; });
}
inline Tensor add(const Tensor& a, Scalar b) {
  return detail::record("AddV2", detail::binary(BinaryOp::Add, a, b), {a}, {}, &detail::pass_gradient);
}
inline Tensor neg(const Tensor& x) {
  return detail::unary(UnaryOp::Neg, x, {}, [](const Tensor& g, const Tensor&, const Tensor&, UnaryParams) { return neg(g); });
}
inline Tensor sub(const Tensor& a, const Tensor& b) {
  return detail::binary(BinaryOp::Subtract, a, b, {}, [](const BackwardContext& c, const Tensor& g) {
    return Gradients{g, c.needs(1) ? neg(g) : Tensor()};
  });
}
inline Tensor sub(const Tensor& a, Scalar b) {
  return detail::record("Sub", detail::binary(BinaryOp::Subtract, a, b), {a}, {}, &detail::pass_gradient);
}
inline Tensor sub(Scalar a, const Tensor& b) {
  return detail::record("Sub", detail::binary(BinaryOp::Subtract, b, a, ScalarSide::left), {b}, {},
                        [](const BackwardContext&, const Tensor& g) { return Gradients{neg(g)}; });
}
inline Tensor mul(const Tensor& a, const Tensor& b) {
  return detail::binary(BinaryOp::Multiply, a, b, {a, b}, [](const BackwardContext& c, const Tensor& g) {
    return Gradients{c.needs(0) ? mul(g, c.saved(1)) : Tensor(), c.needs(1) ? mul(g, c.saved(0)) : Tensor()};
  });
}
inline Tensor mul(const Tensor& a, Scalar b) {
  return detail::record("Mul", detail::binary(BinaryOp::Multiply, a, b), {a}, {},
                        [b](const BackwardContext&, const Tensor& g) { return Gradients{mul(g, b)}; });
}
inline Tensor div(const Tensor& a, const Tensor& b) {
  return detail::binary(BinaryOp::Divide, a, b, {a, b}, [](const BackwardContext& c, const Tensor& g) {
    const Tensor over_b = div(g, c.saved(1));
    return Gradients{over_b, c.needs(1) ? neg(mul(over_b, div(c.saved(0), c.saved(1)))) : Tensor()};
  });
}
inline Tensor div(const Tensor& a, Scalar b) {
  return detail::record("RealDiv", detail::binary(BinaryOp::Divide, a, b), {a}, {},
                        [b](const BackwardContext&, const Tensor& g) { return Gradients{div(g, b)}; });
}
inline Tensor div(Scalar a, const Tensor& b) {
  const Tensor out = detail::binary(BinaryOp::Divide, b, a, ScalarSide::left);
  return detail::record("RealDiv", out, {b}, {b, out},
                        [](const BackwardContext& c, const Tensor& g) { return Gradients{neg(mul(g, div(c.saved(1), c.saved(0))))}; });
}
/// Rounds the quotient down; flat, so its gradient is zero.
inline Tensor floor_divide(const Tensor& a, const Tensor& b) {
  return detail::binary(BinaryOp::FloorDivide, a, b, {}, [](const BackwardContext&, const Tensor&) {
    return Gradients{Tensor(), Tensor()};
  });
}
/// a - floor_divide(a, b) * b: has the sign of b, as in Python.
inline Tensor remainder(const Tensor& a, const Tensor& b) {
  return detail::binary(BinaryOp::Remainder, a, b, {a, b}, [](const BackwardContext& c, const Tensor& g) {
    return Gradients{g, c.needs(1) ? neg(mul(g, floor_divide(c.saved(0), c.saved(1)))) : Tensor()};
  });
}
/// Throws ValueError for integers to a negative integer power, as NumPy: the result is a fraction.
inline Tensor pow(const Tensor& a, Scalar exponent) {
  TL_CHECK(is_floating(a.dtype()) || !exponent.is_integer || exponent.integer >= 0, ValueError, "pow", a.dtype(), " elements to the power ",
           exponent.integer, " are fractions; use a floating exponent or convert with to()");
  return detail::record("Pow", detail::binary(BinaryOp::Power, a, exponent), {a}, {a},
                        [exponent](const BackwardContext& c, const Tensor& g) {
                          if (exponent.real == 0) return Gradients{Tensor()};
                          return Gradients{mul(mul(g, exponent), pow(c.saved(0), Scalar(exponent.real - 1)))};
                        });
}
inline Tensor pow(const Tensor& a, const Tensor& b) {
  const Tensor out = detail::binary(BinaryOp::Power, a, b);
  return detail::record("Pow", out, {a, b}, {a, b, out}, [](const BackwardContext& c, const Tensor& g) {
    Gradients grads(2);
    const Tensor x = c.saved(0), y = c.saved(1), zero = zeros({}, {.dtype = g.dtype()});
    // 0^0 is 1 with slope 0, and 0^y has no slope in y: the general formulas would give NaN there.
    if (c.needs(0)) grads[0] = mul(g, where(detail::binary(BinaryOp::Equal, y, 0), zero, mul(y, pow(x, sub(y, 1)))));
    if (c.needs(1)) grads[1] = mul(g, where(detail::binary(BinaryOp::Equal, x, 0), zero, mul(c.saved(2), log(x))));
    return grads;
  });
}
inline Tensor pow(Scalar base, const Tensor& exponent) {
  const Tensor out = detail::binary(BinaryOp::Power, exponent, base, ScalarSide::left);
  return detail::record("Pow", out, {exponent}, {out}, [base](const BackwardContext& c, const Tensor& g) {
    if (base.as<double>() == 0) return Gradients{Tensor()};  // flat, as in pow() of two tensors
    return Gradients{mul(mul(g, c.saved(0)), std::log(base.as<double>()))};
  });
}

namespace detail {
/// Gradient of a selection: all to the winner, halves where both are equal.
inline Gradients split_by_choice(const BackwardContext& c, const Tensor& g, BinaryOp wins) {
  const Tensor tie = binary(BinaryOp::Equal, c.saved(0), c.saved(1)).to(g.dtype());
  const Tensor first = add(binary(wins, c.saved(0), c.saved(1)).to(g.dtype()), mul(tie, 0.5));
  return {mul(g, first), mul(g, sub(1, first))};
}
}  // namespace detail

/// NaN wins. Equal operands share the gradient.
inline Tensor maximum(const Tensor& a, const Tensor& b) {
  return detail::binary(BinaryOp::Maximum, a, b, {a, b},
                        [](const BackwardContext& c, const Tensor& g) { return detail::split_by_choice(c, g, BinaryOp::Greater); });
}
inline Tensor minimum(const Tensor& a, const Tensor& b) {
  return detail::binary(BinaryOp::Minimum, a, b, {a, b},
                        [](const BackwardContext& c, const Tensor& g) { return detail::split_by_choice(c, g, BinaryOp::Less); });
}
inline Tensor atan2(const Tensor& y, const Tensor& x) {
  return detail::binary(BinaryOp::Atan2, y, x, {y, x}, [](const BackwardContext& c, const Tensor& g) {
    const Tensor scaled = div(g, add(mul(c.saved(0), c.saved(0)), mul(c.saved(1), c.saved(1))));
    return Gradients{mul(scaled, c.saved(1)), neg(mul(scaled, c.saved(0)))};
  });
}
inline Tensor hypot(const Tensor& a, const Tensor& b) {
  const Tensor out = detail::binary(BinaryOp::Hypot, a, b);
  return detail::record("Hypot", out, {a, b}, {a, b, out}, [](const BackwardContext& c, const Tensor& g) {
    const Tensor scaled = div(g, c.saved(2));
    return Gradients{mul(scaled, c.saved(0)), mul(scaled, c.saved(1))};
  });
}
inline Tensor squared_difference(const Tensor& a, const Tensor& b) {
  return detail::binary(BinaryOp::SquaredDifference, a, b, {a, b}, [](const BackwardContext& c, const Tensor& g) {
    const Tensor twice = mul(mul(g, 2), sub(c.saved(0), c.saved(1)));
    return Gradients{twice, c.needs(1) ? neg(twice) : Tensor()};
  });
}

// -------------------------------------------------------------------------------------- comparisons and logic: bool, no gradient
#define TL_COMPARISON(name, op)                                                                       \
  inline Tensor name(const Tensor& a, const Tensor& b) { return detail::binary(BinaryOp::op, a, b); } \
  inline Tensor name(const Tensor& a, Scalar b) { return detail::binary(BinaryOp::op, a, b); }
TL_COMPARISON(equal, Equal)
TL_COMPARISON(not_equal, NotEqual)
TL_COMPARISON(less, Less)
TL_COMPARISON(less_equal, LessEqual)
TL_COMPARISON(greater, Greater)
TL_COMPARISON(greater_equal, GreaterEqual)
TL_COMPARISON(logical_and, LogicalAnd)
TL_COMPARISON(logical_or, LogicalOr)
TL_COMPARISON(logical_xor, LogicalXor)
TL_COMPARISON(bitwise_and, BitwiseAnd)  ///< integers and bool
TL_COMPARISON(bitwise_or, BitwiseOr)
TL_COMPARISON(bitwise_xor, BitwiseXor)
#undef TL_COMPARISON
inline Tensor logical_not(const Tensor& x) { return detail::unary(UnaryOp::LogicalNot, x); }
inline Tensor isnan(const Tensor& x) { return detail::unary(UnaryOp::IsNan, x); }
inline Tensor isinf(const Tensor& x) { return detail::unary(UnaryOp::IsInf, x); }
inline Tensor isfinite(const Tensor& x) { return detail::unary(UnaryOp::IsFinite, x); }

// ---------------------------------------------------------------------------------------------------------------- operators
// As in PyTorch: elementwise, a number on either side, comparisons give a bool tensor.
#define TL_OPERATOR(symbol, function)                                                        \
  inline Tensor operator symbol(const Tensor& a, const Tensor& b) { return function(a, b); } \
  template <class T>                                                                         \
  requires(std::is_arithmetic_v<T>) Tensor operator symbol(const Tensor& a, T b) { return function(a, Scalar(b)); }
TL_OPERATOR(+, add)
TL_OPERATOR(-, sub)
TL_OPERATOR(*, mul)
TL_OPERATOR(/, div)
TL_OPERATOR(==, equal)
TL_OPERATOR(!=, not_equal)
TL_OPERATOR(<, less)
TL_OPERATOR(<=, less_equal)
TL_OPERATOR(>, greater)
TL_OPERATOR(>=, greater_equal)
TL_OPERATOR(&&, logical_and)
TL_OPERATOR(||, logical_or)
#undef TL_OPERATOR
template <class T>
requires(std::is_arithmetic_v<T>) Tensor operator+(T a, const Tensor& b) { return add(b, Scalar(a)); }
template <class T>
requires(std::is_arithmetic_v<T>) Tensor operator-(T a, const Tensor& b) { return sub(Scalar(a), b); }
template <class T>
requires(std::is_arithmetic_v<T>) Tensor operator*(T a, const Tensor& b) { return mul(b, Scalar(a)); }
template <class T>
requires(std::is_arithmetic_v<T>) Tensor operator/(T a, const Tensor& b) { return div(Scalar(a), b); }
inline Tensor operator-(const Tensor& x) { return neg(x); }
inline Tensor operator!(const Tensor& x) { return logical_not(x); }

// -------------------------------------------------------------------------------------------------------------- unary: smooth
// The last argument is the gradient in terms of g (of the result), x_ (the input) and y_ (the result).
#define TL_UNARY(name, op, gradient)                                                                               \
  inline Tensor name(const Tensor& x) {                                                                            \
    return detail::unary(UnaryOp::op, x, {},                                                                       \
                         [](const Tensor& g, [[maybe_unused]] const Tensor& x_, [[maybe_unused]] const Tensor& y_, \
                            UnaryParams) -> Tensor { return gradient; });                                          \
  }
TL_UNARY(square, Square, g* x_ * 2)
TL_UNARY(reciprocal, Reciprocal, -(g* y_* y_))
TL_UNARY(sqrt, Sqrt, g / (y_ * 2))
TL_UNARY(rsqrt, Rsqrt, g* y_* y_* y_ * -0.5)
TL_UNARY(exp, Exp, g* y_)
TL_UNARY(expm1, Expm1, g*(y_ + 1))
TL_UNARY(exp2, Exp2, g* y_ * 0.69314718055994530942)
TL_UNARY(log, Log, g / x_)
TL_UNARY(log1p, Log1p, g / (x_ + 1))
TL_UNARY(log2, Log2, g / x_ * 1.4426950408889634074)
TL_UNARY(log10, Log10, g / x_ * 0.43429448190325182765)
Tensor cos(const Tensor& x);
TL_UNARY(sin, Sin, g* cos(x_))
TL_UNARY(cos, Cos, -(g* sin(x_)))
TL_UNARY(tan, Tan, g*(y_* y_ + 1))
TL_UNARY(asin, Asin, g* rsqrt(1 - x_ * x_))
TL_UNARY(acos, Acos, -(g* rsqrt(1 - x_ * x_)))
TL_UNARY(atan, Atan, g / (x_ * x_ + 1))
Tensor cosh(const Tensor& x);
TL_UNARY(sinh, Sinh, g* cosh(x_))
TL_UNARY(cosh, Cosh, g* sinh(x_))
TL_UNARY(tanh, Tanh, g*(1 - y_ * y_))
TL_UNARY(asinh, Asinh, g* rsqrt(x_* x_ + 1))
TL_UNARY(acosh, Acosh, g* rsqrt(x_* x_ - 1))
TL_UNARY(atanh, Atanh, g / (1 - x_ * x_))
TL_UNARY(erf, Erf, g* exp(-(x_* x_)) * 1.1283791670955125739)
TL_UNARY(erfc, Erfc, g* exp(-(x_* x_)) * -1.1283791670955125739)
TL_UNARY(sigmoid, Sigmoid, g* y_*(1 - y_))
TL_UNARY(log_sigmoid, LogSigmoid, g* sigmoid(-x_))
/// x * sigmoid(x).
TL_UNARY(silu, Silu, g*(sigmoid(x_) * (1 + x_ * (1 - sigmoid(x_)))))
/// x * tanh(log(1 + exp(x))).
TL_UNARY(mish, Mish, g*(tanh(-log_sigmoid(-x_)) + x_ * sigmoid(x_) * (1 - square(tanh(-log_sigmoid(-x_))))))
/// x * Phi(x), with the exact normal distribution function.
TL_UNARY(gelu, Gelu, g*((erf(x_ * 0.70710678118654752440) + 1) * 0.5 + x_ * exp(x_ * x_ * -0.5) * 0.39894228040143267794))

// ---------------------------------------------------------------------------------------------------------- unary: piecewise
/// -1, 0 or 1; NaN stays NaN. Flat, so its gradient is zero, as those of floor, ceil, round and trunc.
inline Tensor sign(const Tensor& x) { return detail::unary(UnaryOp::Sign, x); }
inline Tensor floor(const Tensor& x) { return detail::unary(UnaryOp::Floor, x); }
inline Tensor ceil(const Tensor& x) { return detail::unary(UnaryOp::Ceil, x); }
/// Halves go to the even neighbour.
inline Tensor round(const Tensor& x) { return detail::unary(UnaryOp::Round, x); }
inline Tensor trunc(const Tensor& x) { return detail::unary(UnaryOp::Trunc, x); }
/// The derivative at 0 is 0.
TL_UNARY(abs, Abs, g* sign(x_))
TL_UNARY(softsign, Softsign, g / square(abs(x_) + 1))
/// The derivative at 0 is 0; NaN stays NaN.
TL_UNARY(relu, Relu, g*(y_ > 0).to(g.dtype()))
TL_UNARY(relu6, Relu6, g* logical_and(y_ > 0, y_ < 6).to(g.dtype()))
TL_UNARY(selu, Selu, g* where(x_ > 0, full_like(x_, 1.0507009873554804934), exp(x_) * 1.7580993408473768599))
TL_UNARY(hard_sigmoid, HardSigmoid, g* logical_and(y_ > 0, y_ < 1).to(g.dtype()) * (1.0 / 6))
TL_UNARY(hard_swish, HardSwish, g* where(x_ <= -3, zeros_like(x_), where(x_ < 3, x_*(1.0 / 3) + 0.5, ones_like(x_))))
#undef TL_UNARY

struct SlopeOptions {
  double slope = 0.01;
};
/// x above 0, slope * x below.
inline Tensor leaky_relu(const Tensor& x, SlopeOptions options = {}) {
  return detail::unary(UnaryOp::LeakyRelu, x, {options.slope, 0},
                       [](const Tensor& g, const Tensor& x_, const Tensor&, UnaryParams p) { return where(x_ > 0, g, g * p.a); });
}
struct AlphaOptions {
  double alpha = 1;
};
/// x above 0, alpha * (exp(x) - 1) below.
inline Tensor elu(const Tensor& x, AlphaOptions options = {}) {
  return detail::unary(UnaryOp::Elu, x, {options.alpha, 0}, [](const Tensor& g, const Tensor& x_, const Tensor&, UnaryParams p) {
    return where(x_ > 0, g, g * exp(minimum(x_, zeros_like(x_))) * p.a);
  });
}
struct SoftplusOptions {
  double beta = 1;
  double threshold = 20;  ///< above it beta * x is taken for the logarithm
};
/// log(1 + exp(beta * x)) / beta.
inline Tensor softplus(const Tensor& x, SoftplusOptions options = {}) {
  return detail::unary(
      UnaryOp::Softplus, x, {options.beta, options.threshold},
      [](const Tensor& g, const Tensor& x_, const Tensor&, UnaryParams p) { return where(x_ * p.a > p.b, g, g * sigmoid(x_ * p.a)); });
}
/// gelu by its tanh formula.
inline Tensor gelu_tanh(const Tensor& x) {
  return detail::unary(UnaryOp::GeluTanh, x, {}, [](const Tensor& g, const Tensor& x_, const Tensor&, UnaryParams) {
    constexpr double k = 0.79788456080286535588, c = 0.044715;
    const Tensor t = tanh((x_ + x_ * x_ * x_ * c) * k);
    return g * ((t + 1) * 0.5 + x_ * (1 - t * t) * (1 + x_ * x_ * (3 * c)) * (0.5 * k));
  });
}
namespace detail {
/// Integers cannot be clamped to a fraction.
inline bool holds_bounds(DType dtype, double low, double high) {
  return is_floating(dtype) || (std::trunc(low) == low && std::trunc(high) == high);
}
}  // namespace detail

/// Within [low, high]; NaN stays NaN; integers with fractions as bounds give float64. The gradient is 1 inside and on the bounds, 0
/// outside. Throws ValueError unless low <= high.
inline Tensor clamp(const Tensor& x, double low, double high) {
  TL_CHECK(low <= high, ValueError, "clamp", "low ", low, " is above high ", high);
  return detail::unary(
      UnaryOp::Clamp, detail::holds_bounds(x.dtype(), low, high) ? x : x.to(kFloat64), {low, high},
      [](const Tensor& g, const Tensor& x_, const Tensor&, UnaryParams p) { return g * logical_and(x_ >= p.a, x_ <= p.b).to(g.dtype()); });
}

// -------------------------------------------------------------------------------------------------------------------- where

/// a where the condition holds, b elsewhere; the three broadcast. Throws DTypeError unless the condition is bool.
inline Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  TL_CHECK(condition.dtype() == kBool, DTypeError, "where", "the condition must be bool, it is ", condition.dtype());
  const detail::Placed<3> in("SelectV2", condition, a, b);
  const DType dtype = promote(a.dtype(), b.dtype());
  const Dims sizes = detail::broadcast_sizes("where", condition.sizes(), detail::broadcast_sizes("where", a.sizes(), b.sizes()));
  const Tensor x = in[1].detach().to(dtype), y = in[2].detach().to(dtype);
  Tensor out = detail::make_tensor(sizes, dtype, in.device);
  TL_CALL(in, where, out.raw(), detail::broadcast_view(in.view(0), sizes), detail::broadcast_view(x.raw(), sizes),
          detail::broadcast_view(y.raw(), sizes));
  return detail::record("SelectV2", out, {a, b}, {condition}, [](const BackwardContext& c, const Tensor& g) {
    const Tensor zero = zeros({}, {.dtype = g.dtype()});
    return Gradients{c.needs(0) ? where(c.saved(0), g, zero) : Tensor(), c.needs(1) ? where(c.saved(0), zero, g) : Tensor()};
  });
}
namespace detail {
/// A number beside x: of its dtype, but a fraction beside integers is float64.
inline Tensor scalar_beside(const Tensor& x, Scalar value) {
  return full({}, value, {.dtype = is_floating(x.dtype()) || value.is_integer ? x.dtype() : kFloat64, .device = x.device()});
}
}  // namespace detail
inline Tensor where(const Tensor& condition, const Tensor& a, Scalar b) { return where(condition, a, detail::scalar_beside(a, b)); }
inline Tensor where(const Tensor& condition, Scalar a, const Tensor& b) { return where(condition, detail::scalar_beside(b, a), b); }
/// x with `value` where the mask holds; a fraction makes integers float64.
inline Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value) { return where(mask, value, x); }

// ------------------------------------------------------------------------------------------------------------------ in place
#define TL_INPLACE(name, op, function)                                                                                              \
  inline Tensor& Tensor::name(const Tensor& other) {                                                                                \
    const detail::TensorRef others[] = {other};                                                                                     \
    if (detail::records_inplace(#name, *this, others)) detail::assign_recorded(#name, *this, function(clone(), other).to(dtype())); \
    else detail::binary_(BinaryOp::op, *this, other);                                                                               \
    return *this;                                                                                                                   \
  }                                                                                                                                 \
  inline Tensor& Tensor::name(Scalar other) {                                                                                       \
    if (detail::records_inplace(#name, *this, {})) detail::assign_recorded(#name, *this, function(clone(), other).to(dtype()));     \
    else detail::binary_(BinaryOp::op, *this, other);                                                                               \
    return *this;                                                                                                                   \
  }
TL_INPLACE(add_, Add, add)
TL_INPLACE(sub_, Subtract, sub)
TL_INPLACE(mul_, Multiply, mul)
TL_INPLACE(div_, Divide, div)
#undef TL_INPLACE
inline Tensor& Tensor::clamp_(double low, double high) {
  TL_CHECK(low <= high, ValueError, "clamp_", "low ", low, " is above high ", high);
  TL_CHECK(detail::holds_bounds(dtype(), low, high), DTypeError, "clamp_", "the bounds ", low, " and ", high, " are not ", dtype(),
           "; use clamp() or whole numbers");
  if (detail::records_inplace("clamp_", *this, {})) detail::assign_recorded("clamp_", *this, clamp(clone(), low, high));
  else detail::unary_(UnaryOp::Clamp, *this, {low, high});
  return *this;
}
inline Tensor& Tensor::relu_() {
  if (detail::records_inplace("relu_", *this, {})) detail::assign_recorded("relu_", *this, relu(clone()));
  else detail::unary_(UnaryOp::Relu, *this, {});
  return *this;
}
inline Tensor& Tensor::masked_fill_(const Tensor& mask, Scalar value) {
  TL_CHECK(is_floating(dtype()) || value.is_integer, DTypeError, "masked_fill_", "the fraction ", value.real, " does not fit into a ",
           dtype(), " tensor; use masked_fill()");
  return copy_(masked_fill(*this, mask, value));
}

}  // namespace tensorlite
