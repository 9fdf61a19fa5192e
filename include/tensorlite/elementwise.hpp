// L0: one functor per unary and binary op: value and derivative, written once for float, double, SIMD packets and CUDA threads.
//
// A functor's `value` and `derivative` are templates over T, which is float, double or a packet of them, or an integer type where its
// traits say so. They may use + - * / , unary -, comparisons (which give a mask), & | ^ ! of masks, select(mask, a, b) and the functions of
// scalar_math.hpp; a literal is T(0.5). No branches on values. `p.a`, `p.b` are the op's parameters as T. A derivative that does not name
// its input or result says so in the traits, and the front end need not keep it. To add an op: one functor and one line in the list
// here, one public function in ops/elementwise.hpp, one row in tests/op_cases.hpp.
#pragma once

#include <tensorlite/scalar_math.hpp>

namespace tensorlite {

/// Parameters of a unary op (slope, bounds, ...), 0 when it has none.
struct UnaryParams {
  double a = 0, b = 0;
};

namespace elementwise {

template <class T> struct Params { T a, b; };

// ------------------------------------------------------------------------------------------------------------- shared formulas
/// The bounds of a tail: x held inside [-bound, bound] where the other factor has long been 0 or 1, so that 0 * infinity never arises.
template <class T> TL_HOST_DEVICE inline T bounded(T x, double bound) {
  return select(x < T(-bound), T(-bound), select(x > T(bound), T(bound), x));
}
template <class T> TL_HOST_DEVICE inline T above(T x, double bound) { return select(x < T(bound), T(bound), x); }

/// 1 / (1 + exp(-x)) without overflow and without losing the small tail.
template <class T> TL_HOST_DEVICE inline T sigmoid(T x) {
  const T e = exp(-abs(x));
  return select(x < T(0), e, T(1)) / (T(1) + e);
}
/// log(1 + exp(x)).
template <class T> TL_HOST_DEVICE inline T softplus(T x) { return select(x < T(0), T(0), x) + log1p(exp(-abs(x))); }
/// The normal distribution's cumulative probability and density.
template <class T> TL_HOST_DEVICE inline T normal_cdf(T x) { return T(0.5) * erfc(x * T(-0.70710678118654752440)); }
template <class T> TL_HOST_DEVICE inline T normal_pdf(T x) { return T(0.39894228040143267794) * exp(x * x * T(-0.5)); }
/// e^x (e^x + 2): tanh(softplus(x)) is n / (n + 2). From 20 on that is 1 to the last place of a double.
template <class T> TL_HOST_DEVICE inline T mish_n(T x) {
  const T e = exp(select(x > T(20), T(20), x));
  return e * (e + T(2));
}

// ------------------------------------------------------------------------------------------------------------------------ unary ops
inline constexpr int kInput = 1, kResult = 2;    // what the derivative looks at
inline constexpr int kIntegers = 1, kTruth = 2;  // also for integers and bool; the result is bool

/// Traits of a unary functor.
template <int Looks, int Kind = 0> struct Unary {
  static constexpr bool uses_input = (Looks & kInput) != 0, uses_result = (Looks & kResult) != 0;
  static constexpr bool accepts_integers = (Kind & kIntegers) != 0, gives_bool = (Kind & kTruth) != 0;
  /// Of the ops that are flat wherever they have a slope; the others have their own.
  template <class T> TL_HOST_DEVICE static T derivative(T, T, Params<T>) { return T(0); }
};
#define TL_VALUE template <class T> TL_HOST_DEVICE static T value([[maybe_unused]] T x, [[maybe_unused]] Params<T> p)
#define TL_DERIVATIVE \
  template <class T> TL_HOST_DEVICE static T derivative([[maybe_unused]] T x, [[maybe_unused]] T y, [[maybe_unused]] Params<T> p)

struct Neg : Unary<0, kIntegers> {
  TL_VALUE {
    if constexpr (std::is_integral_v<T>) return subtract(T(0), x);
    else return -x;
  }
  TL_DERIVATIVE { return T(-1); }
};
struct Abs : Unary<kInput, kIntegers> {
  TL_VALUE { return abs(x); }
  TL_DERIVATIVE { return select(x > T(0), T(1), select(x < T(0), T(-1), x)); }
};
struct Sign : Unary<0, kIntegers> {  // of NaN: NaN
  TL_VALUE {
    if constexpr (std::is_unsigned_v<T>) return T(x != T(0));
    else return select(x > T(0), T(1), select(x < T(0), T(-1), x));
  }
};
struct Reciprocal : Unary<kResult> {
  TL_VALUE { return T(1) / x; }
  TL_DERIVATIVE { return -(y * y); }
};
struct Square : Unary<kInput, kIntegers> {
  TL_VALUE { return multiply(x, x); }
  TL_DERIVATIVE { return x + x; }
};
struct Sqrt : Unary<kResult> {
  TL_VALUE { return sqrt(x); }
  TL_DERIVATIVE { return T(0.5) / y; }
};
struct Rsqrt : Unary<kResult> {
  TL_VALUE { return T(1) / sqrt(x); }
  TL_DERIVATIVE { return T(-0.5) * y * y * y; }
};
struct Exp : Unary<kResult> {
  TL_VALUE { return exp(x); }
  TL_DERIVATIVE { return y; }
};
struct Expm1 : Unary<kResult> {
  TL_VALUE { return expm1(x); }
  TL_DERIVATIVE { return y + T(1); }
};
struct Exp2 : Unary<kResult> {
  TL_VALUE { return exp2(x); }
  TL_DERIVATIVE { return y * T(0.69314718055994530942); }
};
struct Log : Unary<kInput> {
  TL_VALUE { return log(x); }
  TL_DERIVATIVE { return T(1) / x; }
};
struct Log1p : Unary<kInput> {
  TL_VALUE { return log1p(x); }
  TL_DERIVATIVE { return T(1) / (T(1) + x); }
};
struct Log2 : Unary<kInput> {
  TL_VALUE { return log2(x); }
  TL_DERIVATIVE { return T(1.4426950408889634074) / x; }
};
struct Log10 : Unary<kInput> {
  TL_VALUE { return log10(x); }
  TL_DERIVATIVE { return T(0.43429448190325182765) / x; }
};
struct Sin : Unary<kInput> {
  TL_VALUE { return sin(x); }
  TL_DERIVATIVE { return cos(x); }
};
struct Cos : Unary<kInput> {
  TL_VALUE { return cos(x); }
  TL_DERIVATIVE { return -sin(x); }
};
struct Tan : Unary<kResult> {
  TL_VALUE { return tan(x); }
  TL_DERIVATIVE { return T(1) + y * y; }
};
struct Asin : Unary<kInput> {
  TL_VALUE { return asin(x); }
  TL_DERIVATIVE { return T(1) / sqrt((T(1) - x) * (T(1) + x)); }
};
struct Acos : Unary<kInput> {
  TL_VALUE { return acos(x); }
  TL_DERIVATIVE { return T(-1) / sqrt((T(1) - x) * (T(1) + x)); }
};
struct Atan : Unary<kInput> {
  TL_VALUE { return atan(x); }
  TL_DERIVATIVE { return T(1) / (T(1) + x * x); }
};
struct Sinh : Unary<kInput> {
  TL_VALUE { return sinh(x); }
  TL_DERIVATIVE { return cosh(x); }
};
struct Cosh : Unary<kInput> {
  TL_VALUE { return cosh(x); }
  TL_DERIVATIVE { return sinh(x); }
};
struct Tanh : Unary<kResult> {
  TL_VALUE { return tanh(x); }
  TL_DERIVATIVE { return (T(1) - y) * (T(1) + y); }
};
struct Asinh : Unary<kInput> {
  TL_VALUE { return asinh(x); }
  TL_DERIVATIVE { return T(1) / hypot(T(1), x); }
};
struct Acosh : Unary<kInput> {
  TL_VALUE { return acosh(x); }
  TL_DERIVATIVE { return T(1) / (sqrt(x - T(1)) * sqrt(x + T(1))); }
};
struct Atanh : Unary<kInput> {
  TL_VALUE { return atanh(x); }
  TL_DERIVATIVE { return T(1) / ((T(1) - x) * (T(1) + x)); }
};
struct Erf : Unary<kInput> {
  TL_VALUE { return erf(x); }
  TL_DERIVATIVE { return T(1.1283791670955125739) * exp(-(x * x)); }
};
struct Erfc : Unary<kInput> {
  TL_VALUE { return erfc(x); }
  TL_DERIVATIVE { return T(-1.1283791670955125739) * exp(-(x * x)); }
};
#define TL_STEP(Name, function)                      \
  struct Name : Unary<0, kIntegers> {                \
    TL_VALUE {                                       \
      if constexpr (std::is_integral_v<T>) return x; \
      else return function(x);                       \
    }                                                \
  };
TL_STEP(Floor, floor)
TL_STEP(Ceil, ceil)
TL_STEP(Round, rint)  // half to even
TL_STEP(Trunc, trunc)
#undef TL_STEP
struct Relu : Unary<kResult, kIntegers> {  // NaN stays NaN, as in PyTorch; the derivative at 0 is 0
  TL_VALUE { return select(x <= T(0), T(0), x); }
  TL_DERIVATIVE { return select(y <= T(0), T(0), T(1)); }
};
struct Relu6 : Unary<kResult, kIntegers> {
  TL_VALUE { return select(x <= T(0), T(0), select(x >= T(6), T(6), x)); }
  TL_DERIVATIVE { return select((y <= T(0)) | (y >= T(6)), T(0), T(1)); }
};
struct LeakyRelu : Unary<kInput> {  // a: the slope below 0
  TL_VALUE { return select(x > T(0), x, x * p.a); }
  TL_DERIVATIVE { return select(x > T(0), T(1), p.a); }
};
struct Elu : Unary<kInput> {  // a: minus the limit at minus infinity
  TL_VALUE { return select(x > T(0), x, p.a * expm1(x)); }
  TL_DERIVATIVE { return select(x > T(0), T(1), p.a * exp(x)); }
};
struct Selu : Unary<kInput> {
  TL_VALUE { return select(x > T(0), T(1.0507009873554804934) * x, T(1.7580993408473768600) * expm1(x)); }
  TL_DERIVATIVE { return select(x > T(0), T(1.0507009873554804934), T(1.7580993408473768600) * exp(x)); }
};
struct Gelu : Unary<kInput> {  // x Phi(x), exact
  TL_VALUE { return above(x, -100) * normal_cdf(x); }
  TL_DERIVATIVE { return normal_cdf(x) + bounded(x, 100) * normal_pdf(x); }
};
struct GeluTanh : Unary<kInput> {  // 0.5 (1 + tanh u) is sigmoid(2 u), which keeps its small tail
  template <class T> TL_HOST_DEVICE static T gate(T x) { return sigmoid(T(1.5957691216057307118) * x * (T(1) + T(0.044715) * x * x)); }
  TL_VALUE { return above(x, -30) * gate(x); }
  TL_DERIVATIVE {
    const T b = bounded(x, 30), s = gate(b), slope = T(1.5957691216057307118) * (T(1) + T(0.134145) * b * b);
    return s + b * slope * s * gate(-b);
  }
};
struct Silu : Unary<kInput> {
  TL_VALUE { return above(x, -1000) * sigmoid(x); }
  TL_DERIVATIVE {
    const T b = bounded(x, 1000);
    return sigmoid(b) * (T(1) + b * sigmoid(-b));
  }
};
struct Mish : Unary<kInput> {
  TL_VALUE {
    const T n = mish_n(x);
    return above(x, -1000) * (n / (n + T(2)));
  }
  TL_DERIVATIVE {
    const T b = bounded(x, 1000), n = mish_n(b), m = n + T(2);
    return n / m + b * sigmoid(b) * (T(4) * (n + T(1)) / m / m);
  }
};
struct Sigmoid : Unary<kResult> {
  TL_VALUE { return sigmoid(x); }
  TL_DERIVATIVE { return y * (T(1) - y); }
};
struct LogSigmoid : Unary<kInput> {
  TL_VALUE { return -softplus(-x); }
  TL_DERIVATIVE { return sigmoid(-x); }
};
struct Softplus : Unary<kInput> {  // a: beta, b: the threshold of beta * x above which it is x
  TL_VALUE { return select(p.a * x > p.b, x, softplus(p.a * x) / p.a); }
  TL_DERIVATIVE { return select(p.a * x > p.b, T(1), sigmoid(p.a * x)); }
};
struct Softsign : Unary<kInput> {
  TL_VALUE { return select(abs(x) == T(HUGE_VAL), select(x > T(0), T(1), T(-1)), x / (T(1) + abs(x))); }
  TL_DERIVATIVE {
    const T r = T(1) / (T(1) + abs(x));
    return r * r;
  }
};
struct HardSigmoid : Unary<kResult> {  // relu6(x + 3) / 6
  TL_VALUE { return Relu6::value(x + T(3), p) / T(6); }
  TL_DERIVATIVE { return select((y <= T(0)) | (y >= T(1)), T(0), T(1) / T(6)); }
};
struct HardSwish : Unary<kInput> {  // x relu6(x + 3) / 6
  TL_VALUE { return above(x, -3) * Relu6::value(x + T(3), p) / T(6); }
  TL_DERIVATIVE { return select(x <= T(-3), T(0), select(x >= T(3), T(1), x / T(3) + T(0.5))); }
};
struct Clamp
    : Unary<kInput, kIntegers> {  // a: the lower bound, b: the upper one, which wins; NaN stays NaN; the derivative at a bound is 1
  TL_VALUE {
    const T raised = select(x < p.a, p.a, x);
    return select(raised > p.b, p.b, raised);
  }
  TL_DERIVATIVE { return select((x < p.a) | (x > p.b), T(0), T(1)); }
};
#undef TL_VALUE
#undef TL_DERIVATIVE

// These give a mask.
#define TL_TRUTH template <class T> TL_HOST_DEVICE static auto value([[maybe_unused]] T x, Params<T>)
struct IsNan : Unary<0, kIntegers | kTruth> {
  TL_TRUTH { return x != x; }
};
struct IsInf : Unary<0, kIntegers | kTruth> {
  TL_TRUTH {
    if constexpr (std::is_integral_v<T>) return false;
    else return abs(x) == T(HUGE_VAL);
  }
};
struct IsFinite : Unary<0, kIntegers | kTruth> {
  TL_TRUTH {
    if constexpr (std::is_integral_v<T>) return true;
    else return abs(x) < T(HUGE_VAL);
  }
};
struct LogicalNot : Unary<0, kIntegers | kTruth> {
  TL_TRUTH { return x == T(0); }
};
#undef TL_TRUTH

// ----------------------------------------------------------------------------------------------------------------------- binary ops
inline constexpr int kFloats = 4;

/// Traits of a binary functor.
template <int Kind> struct Binary {
  static constexpr bool accepts_integers = (Kind & kIntegers) != 0, accepts_floats = (Kind & kFloats) != 0,
                        gives_bool = (Kind & kTruth) != 0;
};
inline constexpr int kAny = kIntegers | kFloats;
#define TL_VALUE2 template <class T> TL_HOST_DEVICE static T value(T a, T b)

struct Add : Binary<kAny> {
  TL_VALUE2 { return add(a, b); }
};
struct Subtract : Binary<kAny> {
  TL_VALUE2 { return subtract(a, b); }
};
struct Multiply : Binary<kAny> {
  TL_VALUE2 { return multiply(a, b); }
};
struct Divide : Binary<kFloats> {
  TL_VALUE2 { return a / b; }
};
struct Remainder : Binary<kAny> {  // has the sign of b, as in NumPy; of integers by 0: 0
  TL_VALUE2 {
    if constexpr (std::is_integral_v<T>) {
      if (b == 0 || b == T(-1)) return T(0);  // smallest / -1 does not fit
      const T r = static_cast<T>(a % b);
      if constexpr (std::is_signed_v<T>) return r != 0 && (r ^ b) < 0 ? r + b : r;
      else return r;
    } else {
      const T r = fmod(a, b), zero = select(b < T(0), T(-0.0), T(0));
      return select(r == T(0), zero, select((r < T(0)) ^ (b < T(0)), r + b, r));
    }
  }
};
struct FloorDivide : Binary<kAny> {  // floor(a / b), exactly; infinity // b is NaN, as in NumPy; of integers by 0: 0; smallest / -1: itself
  TL_VALUE2 {
    if constexpr (std::is_unsigned_v<T>) {
      return b == 0 ? T(0) : static_cast<T>(a / b);
    } else if constexpr (std::is_integral_v<T>) {
      if (b == 0) return 0;
      if (b == -1) return subtract(T(0), a);
      const T q = a / b;
      return (a % b != 0 && (a ^ b) < 0) ? q - 1 : q;
    } else {
      const T r = fmod(a, b);  // a - r is a multiple of b
      const T q = (a - r) / b - select((r != T(0)) & ((r < T(0)) ^ (b < T(0))), T(1), T(0)), whole = floor(q);
      return select(b == T(0), a / b, select(q - whole > T(0.5), whole + T(1), whole));
    }
  }
};
struct Power : Binary<kAny> {  // of integers: wraps; 0 for a negative exponent unless the base is 1 or -1
  TL_VALUE2 {
    if constexpr (std::is_integral_v<T>) {
      if constexpr (std::is_signed_v<T>)
        if (b < 0) return a == 1 ? T(1) : a == -1 ? (b & 1 ? T(-1) : T(1)) : T(0);
      T result = 1;
      for (T base = a; b > 0; b = static_cast<T>(b >> 1), base = multiply(base, base))
        if (b & 1) result = multiply(result, base);
      return result;
    } else {
      return pow(a, b);
    }
  }
};
struct Maximum : Binary<kAny> {  // NaN wins
  TL_VALUE2 { return select((a > b) | (a != a), a, b); }
};
struct Minimum : Binary<kAny> {
  TL_VALUE2 { return select((a < b) | (a != a), a, b); }
};
struct Atan2 : Binary<kFloats> {
  TL_VALUE2 { return atan2(a, b); }
};
struct Hypot : Binary<kFloats> {
  TL_VALUE2 { return hypot(a, b); }
};
struct SquaredDifference : Binary<kAny> {
  TL_VALUE2 {
    const T d = subtract(a, b);
    return multiply(d, d);
  }
};
#define TL_TRUTH2(Name, expression, kind)                                                \
  struct Name : Binary<(kind) | kTruth> {                                                \
    template <class T> TL_HOST_DEVICE static auto value(T a, T b) { return expression; } \
  };
TL_TRUTH2(Equal, a == b, kAny)
TL_TRUTH2(NotEqual, a != b, kAny)
TL_TRUTH2(Less, a < b, kAny)
TL_TRUTH2(LessEqual, a <= b, kAny)
TL_TRUTH2(Greater, a > b, kAny)
TL_TRUTH2(GreaterEqual, a >= b, kAny)
TL_TRUTH2(LogicalAnd, (a != T(0)) & (b != T(0)), kAny)
TL_TRUTH2(LogicalOr, (a != T(0)) | (b != T(0)), kAny)
TL_TRUTH2(LogicalXor, (a != T(0)) ^ (b != T(0)), kAny)
#undef TL_TRUTH2
struct BitwiseAnd : Binary<kIntegers> {
  TL_VALUE2 { return static_cast<T>(a & b); }
};
struct BitwiseOr : Binary<kIntegers> {
  TL_VALUE2 { return static_cast<T>(a | b); }
};
struct BitwiseXor : Binary<kIntegers> {
  TL_VALUE2 { return static_cast<T>(a ^ b); }
};
#undef TL_VALUE2

/// The parameters as the op's T; integers saturate, so that an infinite bound is no bound.
template <class T> TL_HOST_DEVICE inline Params<T> parameters_as(UnaryParams p) {
  if constexpr (std::is_integral_v<T>) return {convert<T>(p.a), convert<T>(p.b)};
  else return {T(p.a), T(p.b)};
}

}  // namespace elementwise

// -------------------------------------------------------------------------------------------------------------------------- the lists
// X(functor / enumerator, TensorFlow's op name for the log)
// clang-format off
#define TL_UNARY_OPS(X)                                                                                                          \
  X(Neg, "Neg") X(Abs, "Abs") X(Sign, "Sign") X(Reciprocal, "Reciprocal") X(Square, "Square") X(Sqrt, "Sqrt") X(Rsqrt, "Rsqrt")    \
  X(Exp, "Exp") X(Expm1, "Expm1") X(Exp2, "Exp2") X(Log, "Log") X(Log1p, "Log1p") X(Log2, "Log2") X(Log10, "Log10")               \
  X(Sin, "Sin") X(Cos, "Cos") X(Tan, "Tan") X(Asin, "Asin") X(Acos, "Acos") X(Atan, "Atan")                                       \
  X(Sinh, "Sinh") X(Cosh, "Cosh") X(Tanh, "Tanh") X(Asinh, "Asinh") X(Acosh, "Acosh") X(Atanh, "Atanh")                           \
  X(Erf, "Erf") X(Erfc, "Erfc") X(Floor, "Floor") X(Ceil, "Ceil") X(Round, "Round") X(Trunc, "Trunc")                             \
  X(Relu, "Relu") X(Relu6, "Relu6") X(LeakyRelu, "LeakyRelu") X(Elu, "Elu") X(Selu, "Selu") X(Gelu, "Gelu")                       \
  X(GeluTanh, "GeluTanh") X(Silu, "Silu") X(Mish, "Mish") X(Sigmoid, "Sigmoid") X(LogSigmoid, "LogSigmoid")                       \
  X(Softplus, "Softplus") X(Softsign, "Softsign") X(HardSigmoid, "HardSigmoid") X(HardSwish, "HardSwish") X(Clamp, "ClipByValue") \
  X(IsNan, "IsNan") X(IsInf, "IsInf") X(IsFinite, "IsFinite") X(LogicalNot, "LogicalNot")
#define TL_BINARY_OPS(X)                                                                                                          \
  X(Add, "AddV2") X(Subtract, "Sub") X(Multiply, "Mul") X(Divide, "RealDiv") X(FloorDivide, "FloorDiv") X(Remainder, "FloorMod")  \
  X(Power, "Pow") X(Maximum, "Maximum") X(Minimum, "Minimum") X(Atan2, "Atan2") X(Hypot, "Hypot")                                 \
  X(SquaredDifference, "SquaredDifference") X(Equal, "Equal") X(NotEqual, "NotEqual") X(Less, "Less") X(LessEqual, "LessEqual")   \
  X(Greater, "Greater") X(GreaterEqual, "GreaterEqual") X(LogicalAnd, "LogicalAnd") X(LogicalOr, "LogicalOr")                     \
  X(LogicalXor, "LogicalXor") X(BitwiseAnd, "BitwiseAnd") X(BitwiseOr, "BitwiseOr") X(BitwiseXor, "BitwiseXor")
// clang-format on

#define TL_ENUMERATOR(name, text) name,
enum class UnaryOp : std::uint16_t { TL_UNARY_OPS(TL_ENUMERATOR) };
enum class BinaryOp : std::uint16_t { TL_BINARY_OPS(TL_ENUMERATOR) };
#undef TL_ENUMERATOR

#define TL_NAME_CASE(name, text) text,
constexpr const char* name_of(UnaryOp op) {
  constexpr const char* names[] = {TL_UNARY_OPS(TL_NAME_CASE)};
  return names[static_cast<int>(op)];
}
constexpr const char* name_of(BinaryOp op) {
  constexpr const char* names[] = {TL_BINARY_OPS(TL_NAME_CASE)};
  return names[static_cast<int>(op)];
}
#undef TL_NAME_CASE

#define TL_TRAIT(function, Op, LIST, trait)             \
  constexpr bool function(Op op) {                      \
    constexpr bool values[] = {LIST(TL_TRAIT_##trait)}; \
    return values[static_cast<int>(op)];                \
  }
#define TL_TRAIT_input(name, text) elementwise::name::uses_input,
#define TL_TRAIT_result(name, text) elementwise::name::uses_result,
#define TL_TRAIT_integers(name, text) elementwise::name::accepts_integers,
#define TL_TRAIT_floats(name, text) elementwise::name::accepts_floats,
#define TL_TRAIT_truth(name, text) elementwise::name::gives_bool,
/// Whether unary_backward looks at the op's input; its view may be absent when not.
TL_TRAIT(derivative_uses_input, UnaryOp, TL_UNARY_OPS, input)
/// Whether unary_backward looks at the op's result; its view may be absent when not.
TL_TRAIT(derivative_uses_result, UnaryOp, TL_UNARY_OPS, result)
/// Whether the op is for integers and bool as they are (bool counts as 0 and 1); every unary op is for floating-point numbers.
TL_TRAIT(accepts_integers, UnaryOp, TL_UNARY_OPS, integers)
TL_TRAIT(accepts_integers, BinaryOp, TL_BINARY_OPS, integers)
TL_TRAIT(accepts_floats, BinaryOp, TL_BINARY_OPS, floats)
/// Whether the result is bool whatever the input. Such ops have no gradient.
TL_TRAIT(gives_bool, UnaryOp, TL_UNARY_OPS, truth)
TL_TRAIT(gives_bool, BinaryOp, TL_BINARY_OPS, truth)
#undef TL_TRAIT
#undef TL_TRAIT_input
#undef TL_TRAIT_result
#undef TL_TRAIT_integers
#undef TL_TRAIT_floats
#undef TL_TRAIT_truth

}  // namespace tensorlite
