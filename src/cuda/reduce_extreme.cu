// max, min, any, all, argmax, argmin.
#include "reduce.cuh"

namespace tensorlite::cuda {
namespace {

struct StoreValue {
  Store store;
  template <class A> __device__ void operator()(std::int64_t i, const A& best) const { store(i, best.value); }
};
struct StoreIndex {
  std::int64_t* out;
  template <class A> __device__ void operator()(std::int64_t i, const A& best) const { out[i] = best.index; }
};

}  // namespace

void reduce_extremes(const Context& context, ReduceOp op, const View& out, const View& in, std::uint32_t axes) {
  const StoreValue finish{{out.data, out.dtype}};
  dispatch_all(context, in.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using C = Compute<T>;
    constexpr bool kVector = is_floating(dtype_of<T>);
    switch (op) {
      case ReduceOp::max: return reduce_strided<Extreme<C, true>, C, T, kVector>(context, out, in, axes, finish);
      case ReduceOp::min: return reduce_strided<Extreme<C, false>, C, T, kVector>(context, out, in, axes, finish);
      case ReduceOp::any: return reduce_strided<Any, C, T, false>(context, out, in, axes, finish);
      default: return reduce_strided<All, C, T, false>(context, out, in, axes, finish);
    }
  });
}

void arg_reduce(const Context& context, ArgOp op, const View& out, const View& in, int axis) {
  const StoreIndex finish{out.ptr<std::int64_t>()};
  dispatch_all(context, in.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using C = Compute<T>;
    if (op == ArgOp::argmax) reduce_strided<ArgExtreme<C, true>, C, T, false>(context, out, in, 1u << axis, finish);
    else reduce_strided<ArgExtreme<C, false>, C, T, false>(context, out, in, 1u << axis, finish);
  });
}

}  // namespace tensorlite::cuda
