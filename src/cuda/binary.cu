// binary, binary_scalar: the choice of a type.
#include "binary.cuh"

namespace tensorlite::cuda {

TL_BINARY(extern, float)
TL_BINARY(extern, double)
TL_BINARY(extern, float16)
TL_BINARY(extern, bfloat16)
TL_BINARY(extern, std::int32_t)
TL_BINARY(extern, std::int64_t)
TL_BINARY(extern, std::uint8_t)
TL_BINARY(extern, bool)
TL_BINARY_SCALAR(extern, float)
TL_BINARY_SCALAR(extern, double)
TL_BINARY_SCALAR(extern, float16)
TL_BINARY_SCALAR(extern, bfloat16)

namespace {
void require_dtype(const Context& context, BinaryOp op, DType dtype) {
  TL_CHECK(is_floating(dtype) ? accepts_floats(op) : accepts_integers(op), DTypeError, context.op, "needs ",
           accepts_floats(op) ? "a floating-point dtype" : "an integer dtype or bool", ", got ", dtype, "; convert with to()");
}
}  // namespace

void binary(const Context& context, BinaryOp op, const View& out, const View& a, const View& b) {
  require_dtype(context, op, a.dtype);
  if (out.numel() == 0) return;
  const Axes<3> axes = axes_of<3>(out, {&a, &b});
  Operands<3> operands;
  set_pointers<3>(operands, out, {&a, &b});
  dispatch_all(context, a.dtype, [&](auto type) { binary_typed<typename decltype(type)::type>(context, op, axes, operands); });
}

void binary_scalar(const Context& context, BinaryOp op, const View& out, const View& a, Scalar b, ScalarSide side) {
  require_dtype(context, op, a.dtype);
  if (op == BinaryOp::Power && side == ScalarSide::right && b.as<double>() == 2 && is_floating(a.dtype))
    return binary(context, BinaryOp::Multiply, out, a, a);
  if (out.numel() == 0) return;
  dispatch_all(context, a.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if constexpr (is_floating(dtype_of<T>)) {  // of half types the scalar keeps float32's precision
      Operands<2> operands;
      set_pointers<2>(operands, out, {&a});
      binary_scalar_typed<T>(context, op, axes_of<2>(out, {&a}), operands, b.as<Compute<T>>(), side);
    } else {
      const View scalar;
      const bool left = side == ScalarSide::left;
      const View &x = left ? scalar : a, &y = left ? a : scalar;
      Operands<3> operands;
      set_pointers<3>(operands, out, {&x, &y});
      operands.set_scalar(b.as<T>());
      binary_typed<T>(context, op, axes_of<3>(out, {&x, &y}), operands);
    }
  });
}

}  // namespace tensorlite::cuda
