// reduce (the choice of a family), var, logsumexp.
#include "reduce.cuh"

namespace tensorlite::cuda {
namespace {

struct StoreMoment {
  Store store;
  double correction;
  template <class C> __device__ void operator()(std::int64_t i, const Moments<C>& m) const {
    const C divisor = m.count - static_cast<C>(correction);
    store(i, m.deviation / (divisor > 0 ? divisor : C(0)));
  }
  template <class C> __device__ void operator()(std::int64_t i, const LogSumExp<C>& sum) const { store(i, sum.result()); }
};

}  // namespace

void reduce_moments(const Context& context, ReduceOp op, const View& out, const View& in, std::uint32_t axes, double correction) {
  const StoreMoment finish{{out.data, out.dtype}, correction};
  dispatch_floating(context, in.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using C = Compute<T>;
    if (op == ReduceOp::var) reduce_strided<Moments<C>, C, T, false>(context, out, in, axes, finish);
    else reduce_strided<LogSumExp<C>, C, T, false>(context, out, in, axes, finish);
  });
}

void reduce(const Context& context, ReduceOp op, const View& out, const View& in, std::uint32_t axes, double correction) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::mean:
    case ReduceOp::prod:
    case ReduceOp::norm2: return reduce_sums(context, op, out, in, axes);
    case ReduceOp::var:
    case ReduceOp::logsumexp: return reduce_moments(context, op, out, in, axes, correction);
    default: return reduce_extremes(context, op, out, in, axes);
  }
}

}  // namespace tensorlite::cuda
