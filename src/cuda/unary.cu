// unary, unary_backward: the choice of a type, and the integer types.
#include "unary.cuh"

namespace tensorlite::cuda {

TL_DECLARE_UNARY(float)
TL_DECLARE_UNARY(double)
TL_DECLARE_UNARY(float16)
TL_DECLARE_UNARY(bfloat16)

void unary(const Context& context, UnaryOp op, const View& out, const View& in, UnaryParams params) {
  if (out.numel() == 0) return;
  const Axes<2> axes = axes_of<2>(out, {&in});
  Operands<2> operands;
  set_pointers<2>(operands, out, {&in});
  dispatch_all(context, in.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if constexpr (is_floating(dtype_of<T>)) {
      unary_floating<T>(context, op, axes, operands, params);
    } else {
      TL_CHECK(accepts_integers(op), DTypeError, context.op, "needs a floating-point dtype, got ", in.dtype, "; convert with to()");
      const auto p = elementwise::parameters_as<Number<T>>(params);
      if (gives_bool(op)) elementwise<bool, T>(context, axes, operands, AnyUnary<T, bool>{op, p}, AnyUnary<T, bool>{op, p});
      else if constexpr (!std::is_same_v<T, bool>) elementwise<T, T>(context, axes, operands, AnyUnary<T, T>{op, p}, AnyUnary<T, T>{op, p});
      else copy(context, out, in);  // of 0 and 1, each of these ops gives 0 and 1
    }
  });
}

void unary_backward(const Context& context, UnaryOp op, const View& grad_in, const View& grad_out, const View& in, const View& result,
                    UnaryParams params) {
  if (grad_in.numel() == 0) return;
  const View absent;
  const View& x = derivative_uses_input(op) ? in : absent;
  const View& y = derivative_uses_result(op) ? result : absent;
  const Axes<4> axes = axes_of<4>(grad_in, {&grad_out, &x, &y});
  Operands<4> operands;
  set_pointers<4>(operands, grad_in, {&grad_out, &x, &y});
  dispatch_floating(context, grad_in.dtype,
                    [&](auto type) { unary_backward_floating<typename decltype(type)::type>(context, op, axes, operands, params); });
}

}  // namespace tensorlite::cuda
