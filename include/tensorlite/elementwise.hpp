// L0: one functor per unary and binary op: value and derivative, written once for float, double, SIMD packets and CUDA threads.
//
// A functor's `value` and `derivative` are templates over T, which is float, double or a packet of them. They may use + - * / , unary -,
// comparisons (which give a mask), select(mask, a, b) and the functions of `math` below; a literal is T(0.5). No branches on values.
// `p.a`, `p.b` are the op's parameters as T. To add an op: one functor and one line in the list here, one public function in
// ops/elementwise.hpp, one row in tests/op_cases.hpp.
#pragma once

#include <tensorlite/base.hpp>

#include <cmath>

namespace tensorlite {

/// Parameters of a unary op (slope, bounds, ...), 0 when it has none.
struct UnaryParams {
  double a = 0, b = 0;
};

namespace elementwise {

template <class T> struct Params { T a, b; };

// ------------------------------------------------------------------------------------------------- math for scalars (see cpu/vec.hpp)
template <class T> TL_HOST_DEVICE inline T select(bool condition, T a, T b) { return condition ? a : b; }
TL_HOST_DEVICE inline float exp(float x) { return ::expf(x); }
TL_HOST_DEVICE inline double exp(double x) { return ::exp(x); }
TL_HOST_DEVICE inline float sqrt(float x) { return ::sqrtf(x); }
TL_HOST_DEVICE inline double sqrt(double x) { return ::sqrt(x); }

// ------------------------------------------------------------------------------------------------------------------------ unary ops
struct Neg {
  template <class T> TL_HOST_DEVICE static T value(T x, Params<T>) { return -x; }
  template <class T> TL_HOST_DEVICE static T derivative(T, T, Params<T>) { return T(-1); }
};
struct Exp {
  template <class T> TL_HOST_DEVICE static T value(T x, Params<T>) { return exp(x); }
  template <class T> TL_HOST_DEVICE static T derivative(T, T y, Params<T>) { return y; }
};
struct Relu {  // NaN stays NaN, as in PyTorch; the derivative at 0 is 0
  template <class T> TL_HOST_DEVICE static T value(T x, Params<T>) { return select(x <= T(0), T(0), x); }
  template <class T> TL_HOST_DEVICE static T derivative(T, T y, Params<T>) { return select(y <= T(0), T(0), T(1)); }
};
struct Sigmoid {
  template <class T> TL_HOST_DEVICE static T value(T x, Params<T>) { return T(1) / (T(1) + exp(-x)); }
  template <class T> TL_HOST_DEVICE static T derivative(T, T y, Params<T>) { return y * (T(1) - y); }
};

// ----------------------------------------------------------------------------------------------------------------------- binary ops
struct Add {
  template <class T> TL_HOST_DEVICE static T value(T a, T b) { return a + b; }
};
struct Multiply {
  template <class T> TL_HOST_DEVICE static T value(T a, T b) { return a * b; }
};

}  // namespace elementwise

// -------------------------------------------------------------------------------------------------------------------------- the lists
// X(functor / enumerator, TensorFlow's op name for the log)
// clang-format off
#define TL_UNARY_OPS(X) X(Neg, "Neg") X(Exp, "Exp") X(Relu, "Relu") X(Sigmoid, "Sigmoid")
#define TL_BINARY_OPS(X) X(Add, "AddV2") X(Multiply, "Mul")
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

}  // namespace tensorlite
