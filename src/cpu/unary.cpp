// unary: the front of the kernel and the integer dtypes. The floating-point functions are in unary_float.cpp and unary_double.cpp.
#include "kernels.hpp"

#include "dispatch.hpp"
#include "move.hpp"
#include "unary.hpp"

namespace tensorlite::cpu::TL_CPU_NS {
namespace {

template <class Op, class T> void integer_block(void* out_, const void* const* in, std::int64_t count, const void* parameters) {
  using Out = std::conditional_t<Op::gives_bool, bool, T>;
  const auto params = elementwise::parameters_as<T>(*static_cast<const UnaryParams*>(parameters));
  Out* out = static_cast<Out*>(out_);
  const T* x = static_cast<const T*>(in[0]);
  for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<Out>(Op::value(x[i], params));
}

template <class Op, class T> constexpr BlockFunction integer_block_or_null() {
  if constexpr (Op::accepts_integers) return &integer_block<Op, T>;
  else return nullptr;
}

#define TL_ENTRY(name, text) integer_block_or_null<elementwise::name, T>(),
template <class T> BlockFunction integer_function(UnaryOp op) {
  static constexpr BlockFunction functions[] = {TL_UNARY_OPS(TL_ENTRY)};
  return functions[static_cast<int>(op)];
}
#undef TL_ENTRY

BlockFunction function_of(UnaryOp op, DType block) {
  switch (block) {
    case DType::float32: return unary_float(op);
    case DType::float64: return unary_double(op);
    case DType::int32: return integer_function<std::int32_t>(op);
    case DType::int64: return integer_function<std::int64_t>(op);
    default: return integer_function<std::uint8_t>(op);
  }
}

}  // namespace

bool is_cheap(UnaryOp op) {
  switch (op) {
    case UnaryOp::Neg:
    case UnaryOp::Abs:
    case UnaryOp::Sign:
    case UnaryOp::Square:
    case UnaryOp::Relu:
    case UnaryOp::Relu6:
    case UnaryOp::LeakyRelu:
    case UnaryOp::Clamp:
    case UnaryOp::LogicalNot: return true;
    default: return false;
  }
}

void unary(const Context& context, UnaryOp op, const View& out, const View& in, UnaryParams params) {
  const DType block = compute_dtype(in.dtype);
  const BlockFunction f = function_of(op, block);
  if (!f) throw_dtype(context.op, in.dtype, "a floating-point dtype");
  run_blocks(f, &params, is_cheap(op) ? kCheapGrain : kCostlyGrain, {{out, gives_bool(op) ? kBool : block}, {in, block}});
}

}  // namespace tensorlite::cpu::TL_CPU_NS
