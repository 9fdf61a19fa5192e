#include "kernels.hpp"

#include "dispatch.hpp"
#include "move.hpp"
#include "unary.hpp"

namespace tensorlite::cpu::TL_CPU_NS {

void unary_backward(const Context& context, UnaryOp op, const View& grad_in, const View& grad_out, const View& in, const View& result,
                    UnaryParams params) {
  const DType block = compute_dtype(grad_in.dtype);
  if (block != kFloat32 && block != kFloat64) throw_dtype(context.op, grad_in.dtype, "a floating-point dtype");
  const View absent;
  const BlockFunction f = block == kFloat32 ? unary_backward_float(op) : unary_backward_double(op);
  run_blocks(f, &params, is_cheap(op) ? kCheapGrain : kCostlyGrain,
             {{grad_in, block},
              {grad_out, block},
              {derivative_uses_input(op) ? in : absent, block},
              {derivative_uses_result(op) ? result : absent, block}});
}

}  // namespace tensorlite::cpu::TL_CPU_NS
