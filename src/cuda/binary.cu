// binary, binary_scalar: the choice of a type.
#include "binary.cuh"

namespace tensorlite::cuda {

TL_BINARY_SIGNATURES(extern, float)
TL_BINARY_SIGNATURES(extern, double)
TL_BINARY_SIGNATURES(extern, float16)
TL_BINARY_SIGNATURES(extern, bfloat16)
TL_BINARY_SIGNATURES(extern, std::int32_t)
TL_BINARY_SIGNATURES(extern, std::int64_t)
TL_BINARY_SIGNATURES(extern, std::uint8_t)
TL_BINARY_SIGNATURES(extern, bool)

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
  const Axes<2> axes = axes_of<2>(out, {&a});
  Operands<2> operands;
  set_pointers<2>(operands, out, {&a});
  dispatch_all(context, a.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const Number<T> scalar = std::is_same_v<T, bool> ? static_cast<Number<T>>(b.as<bool>()) : b.as<Number<T>>();
    binary_scalar_typed<T>(context, op, axes, operands, scalar, side);
  });
}

}  // namespace tensorlite::cuda
