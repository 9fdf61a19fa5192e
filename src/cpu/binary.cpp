// binary, binary_scalar.
#include "binary.hpp"

#include "dispatch.hpp"
#include "kernels.hpp"
#include "move.hpp"

namespace tensorlite::cpu::TL_CPU_NS {
namespace {

BlockFunction function_of(const Context& context, BinaryOp op, DType dtype) {
  BlockFunction f = nullptr;
  switch (compute_dtype(dtype)) {
    case DType::float32: f = binary_float(op); break;
    case DType::float64: f = binary_double(op); break;
    case DType::int32: f = binary_int32(op); break;
    case DType::int64: f = binary_int64(op); break;
    default: f = binary_uint8(op);
  }
  if (!f) throw_dtype(context.op, dtype, accepts_floats(op) ? "a floating-point dtype" : "an integer dtype or bool");
  return f;
}

std::int64_t grain_of(BinaryOp op) {
  switch (op) {
    case BinaryOp::Power:
    case BinaryOp::Atan2:
    case BinaryOp::Hypot:
    case BinaryOp::Remainder:
    case BinaryOp::FloorDivide: return kCostlyGrain;
    default: return kCheapGrain;
  }
}

void run(const Context& context, BinaryOp op, const View& out, const View& a, const View& b, DType dtype) {
  const DType block = compute_dtype(dtype);
  run_blocks(function_of(context, op, dtype), nullptr, grain_of(op), {{out, gives_bool(op) ? kBool : block}, {a, block}, {b, block}});
}

}  // namespace

void binary(const Context& context, BinaryOp op, const View& out, const View& a, const View& b) { run(context, op, out, a, b, a.dtype); }

void binary_scalar(const Context& context, BinaryOp op, const View& out, const View& a, Scalar b, ScalarSide side) {
  if (op == BinaryOp::Power && side == ScalarSide::right && b.as<double>() == 2 && is_floating(a.dtype))
    return run(context, BinaryOp::Multiply, out, a, a, a.dtype);
  const DType block = compute_dtype(a.dtype);
  alignas(8) char value[8];
  dispatch_all(context.op, block, [&](auto tag) {
    using T = typename decltype(tag)::type;
    *reinterpret_cast<T*>(value) = a.dtype == kBool ? static_cast<T>(b.as<bool>()) : b.as<T>();
  });
  const View scalar(value, block, a.device, a.sizes, Dims::filled(a.dim(), 0));  // half types: the scalar keeps float32's precision
  if (side == ScalarSide::right) run(context, op, out, a, scalar, a.dtype);
  else run(context, op, out, scalar, a, a.dtype);
}

}  // namespace tensorlite::cpu::TL_CPU_NS
