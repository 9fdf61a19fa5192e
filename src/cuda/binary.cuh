// binary and binary_scalar for one element type; instantiated in binary_*.cu.
#pragma once

#include "unary.cuh"

namespace tensorlite::cuda {

template <class Op, class T> struct Binary {
  using Result = std::conditional_t<Op::gives_bool, bool, T>;
  __device__ Result operator()(T a, T b) const {
    const auto value = Op::value(static_cast<Number<T>>(load(a)), static_cast<Number<T>>(load(b)));
    if constexpr (Op::gives_bool) return value;
    else if constexpr (std::is_same_v<T, bool>) return value != 0;
    else return store<T>(value);
  }
};
/// The other operand is a number, kept in the type that is computed in.
template <class Op, class T, bool kLeft> struct BinaryScalar {
  Number<T> scalar;
  using Result = std::conditional_t<Op::gives_bool, bool, T>;
  __device__ Result operator()(T x) const {
    const auto number = static_cast<Number<T>>(load(x));
    const auto value = kLeft ? Op::value(scalar, number) : Op::value(number, scalar);
    if constexpr (Op::gives_bool) return value;
    else if constexpr (std::is_same_v<T, bool>) return value != 0;
    else return store<T>(value);
  }
};

template <class Op, class T> constexpr bool accepts() { return is_floating(dtype_of<T>) ? Op::accepts_floats : Op::accepts_integers; }

template <class T, class Result> struct AnyBinary {
  static constexpr bool kChoosesAtRunTime = true;
  BinaryOp op;
  __device__ Result operator()(T a, T b) const {
#define TL_CASE(name, text)                                                                                                 \
  case BinaryOp::name:                                                                                                      \
    if constexpr (accepts<elementwise::name, T>() && std::is_same_v<Result, typename Binary<elementwise::name, T>::Result>) \
      return Binary<elementwise::name, T>{}(a, b);                                                                          \
    break;
    switch (op) { TL_BINARY_OPS(TL_CASE) }
#undef TL_CASE
    return Result{};
  }
};
template <class T, class Result> struct AnyBinaryScalar {
  static constexpr bool kChoosesAtRunTime = true;
  BinaryOp op;
  ScalarSide side;
  Number<T> scalar;
  __device__ Result operator()(T x) const {
#define TL_CASE(name, text)                                                                                                 \
  case BinaryOp::name:                                                                                                      \
    if constexpr (accepts<elementwise::name, T>() && std::is_same_v<Result, typename Binary<elementwise::name, T>::Result>) \
      return side == ScalarSide::left ? BinaryScalar<elementwise::name, T, true>{scalar}(x)                                 \
                                      : BinaryScalar<elementwise::name, T, false>{scalar}(x);                               \
    break;
    switch (op) { TL_BINARY_OPS(TL_CASE) }
#undef TL_CASE
    return Result{};
  }
};

template <class T> void binary_typed(const Context& context, BinaryOp op, const Axes<3>& axes, const Operands<3>& operands) {
#define TL_CASE(name, text)                                                                                                \
  case BinaryOp::name:                                                                                                     \
    if constexpr (is_floating(dtype_of<T>) && elementwise::name::accepts_floats) {                                         \
      using Result = typename Binary<elementwise::name, T>::Result;                                                        \
      return elementwise<Result, T, T>(context, axes, operands, Binary<elementwise::name, T>{}, AnyBinary<T, Result>{op}); \
    }                                                                                                                      \
    break;
  switch (op) { TL_BINARY_OPS(TL_CASE) }
#undef TL_CASE
  if (gives_bool(op) || std::is_same_v<T, bool>)
    elementwise<bool, T, T>(context, axes, operands, AnyBinary<T, bool>{op}, AnyBinary<T, bool>{op});
  else if constexpr (!std::is_same_v<T, bool>) elementwise<T, T, T>(context, axes, operands, AnyBinary<T, T>{op}, AnyBinary<T, T>{op});
}

/// Floating-point T. The usual arithmetic has kernels of its own; the rest chooses at run time.
template <class T>
void binary_scalar_typed(const Context& context, BinaryOp op, const Axes<2>& axes, const Operands<2>& operands, Compute<T> scalar,
                         ScalarSide side) {
  const auto run = [&](auto fast) {
    using Result = typename decltype(fast)::Result;
    elementwise<Result, T>(context, axes, operands, fast, AnyBinaryScalar<T, Result>{op, side, scalar});
  };
  if (op == BinaryOp::Add) return run(BinaryScalar<elementwise::Add, T, false>{scalar});
  if (op == BinaryOp::Multiply) return run(BinaryScalar<elementwise::Multiply, T, false>{scalar});
  if (op == BinaryOp::Subtract && side == ScalarSide::right) return run(BinaryScalar<elementwise::Subtract, T, false>{scalar});
  if (op == BinaryOp::Divide && side == ScalarSide::right) return run(BinaryScalar<elementwise::Divide, T, false>{scalar});
  const AnyBinaryScalar<T, bool> truth{op, side, scalar};
  const AnyBinaryScalar<T, T> number{op, side, scalar};
  if (gives_bool(op)) elementwise<bool, T>(context, axes, operands, truth, truth);
  else elementwise<T, T>(context, axes, operands, number, number);
}

#define TL_BINARY(prefix, T) prefix template void binary_typed<T>(const Context&, BinaryOp, const Axes<3>&, const Operands<3>&);
#define TL_BINARY_SCALAR(prefix, T) \
  prefix template void binary_scalar_typed<T>(const Context&, BinaryOp, const Axes<2>&, const Operands<2>&, Compute<T>, ScalarSide);

}  // namespace tensorlite::cuda
