// unary and unary_backward for one element type; instantiated in unary_*.cu.
#pragma once

#include "elementwise.cuh"

namespace tensorlite::cuda {

/// What an elementwise op computes in: bool counts as 0 and 1.
template <class T> using Number = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, Compute<T>>;

template <class Op, class N> __device__ auto value_of(N x, const elementwise::Params<N>& params) {
  if constexpr (std::is_same_v<Op, elementwise::Gelu> && std::is_same_v<N, float>) return elementwise::above(x, -100) * normal_cdf(x);
  else return Op::value(x, params);
}

/// One op, known when compiled.
template <class Op, class T> struct Unary {
  elementwise::Params<Number<T>> params;
  using Result = std::conditional_t<Op::gives_bool, bool, T>;
  __device__ Result operator()(T x) const {
    const auto value = value_of<Op>(static_cast<Number<T>>(load(x)), params);
    if constexpr (Op::gives_bool) return value;
    else return store<T>(static_cast<Compute<T>>(value));
  }
};
/// Any op with a result of type Result, chosen at run time.
template <class T, class Result> struct AnyUnary {
  static constexpr bool kChoosesAtRunTime = true;
  UnaryOp op;
  elementwise::Params<Number<T>> params;
  __device__ Result operator()(T x) const {
#define TL_CASE(name, text)                                                          \
  case UnaryOp::name:                                                                \
    if constexpr (elementwise::name::gives_bool == std::is_same_v<Result, bool> &&   \
                  (is_floating(dtype_of<T>) || elementwise::name::accepts_integers)) \
      return Unary<elementwise::name, T>{params}(x);                                 \
    break;
    switch (op) { TL_UNARY_OPS(TL_CASE) }
#undef TL_CASE
    return Result{};
  }
};

template <class Op, class T> struct UnaryBackward {
  elementwise::Params<Compute<T>> params;
  __device__ T operator()(T grad, T x, T y) const { return store<T>(load(grad) * Op::derivative(load(x), load(y), params)); }
};
template <class T> struct AnyUnaryBackward {
  static constexpr bool kChoosesAtRunTime = true;
  UnaryOp op;
  elementwise::Params<Compute<T>> params;
  __device__ T operator()(T grad, T x, T y) const {
#define TL_CASE(name, text) \
  case UnaryOp::name: return UnaryBackward<elementwise::name, T>{params}(grad, x, y);
    switch (op) { TL_UNARY_OPS(TL_CASE) }
#undef TL_CASE
    return grad;
  }
};

/// Floating-point T: packs run a kernel of their own op.
template <class T>
void unary_floating(const Context& context, UnaryOp op, const Axes<2>& axes, const Operands<2>& operands, UnaryParams params) {
  const auto p = elementwise::parameters_as<Number<T>>(params);
#define TL_CASE(name, text)                                                                                             \
  case UnaryOp::name: {                                                                                                 \
    using Result = typename Unary<elementwise::name, T>::Result;                                                        \
    return elementwise<Result, T>(context, axes, operands, Unary<elementwise::name, T>{p}, AnyUnary<T, Result>{op, p}); \
  }
  switch (op) { TL_UNARY_OPS(TL_CASE) }
#undef TL_CASE
}

template <class T>
void unary_backward_floating(const Context& context, UnaryOp op, const Axes<4>& axes, const Operands<4>& operands, UnaryParams params) {
  const auto p = elementwise::parameters_as<Compute<T>>(params);
#define TL_CASE(name, text) \
  case UnaryOp::name:       \
    return elementwise<T, T, T, T>(context, axes, operands, UnaryBackward<elementwise::name, T>{p}, AnyUnaryBackward<T>{op, p});
  switch (op) { TL_UNARY_OPS(TL_CASE) }
#undef TL_CASE
}

#define TL_DECLARE_UNARY(T)                                                                                         \
  extern template void unary_floating<T>(const Context&, UnaryOp, const Axes<2>&, const Operands<2>&, UnaryParams); \
  extern template void unary_backward_floating<T>(const Context&, UnaryOp, const Axes<4>&, const Operands<4>&, UnaryParams);
#define TL_INSTANTIATE_UNARY(T) template void unary_floating<T>(const Context&, UnaryOp, const Axes<2>&, const Operands<2>&, UnaryParams);
#define TL_INSTANTIATE_UNARY_BACKWARD(T) \
  template void unary_backward_floating<T>(const Context&, UnaryOp, const Axes<4>&, const Operands<4>&, UnaryParams);

}  // namespace tensorlite::cuda
