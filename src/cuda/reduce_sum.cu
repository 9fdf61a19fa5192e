// sum, mean, prod, norm2.
#include "reduce.cuh"

namespace tensorlite::cuda {
namespace {

/// Stores a sum, divided by `divisor` (negative: as it is).
struct StoreSum {
  Store store;
  double divisor;
  template <class C> __device__ void operator()(std::int64_t i, const Sum<C>& sum) const {
    if (divisor < 0) store(i, sum.value);
    else if constexpr (std::is_integral_v<C>) store(i, static_cast<double>(sum.value) / divisor);
    else store(i, sum.value / static_cast<C>(divisor));
  }
  template <class C> __device__ void operator()(std::int64_t i, const Product<C>& product) const { store(i, product.value); }
  template <class C> __device__ void operator()(std::int64_t i, const SumOfSquares<C>& sum) const { store(i, ::sqrt(sum.value)); }
};

}  // namespace

void reduce_sums(const Context& context, ReduceOp op, const View& out, const View& in, std::uint32_t axes) {
  const double count = out.numel() ? static_cast<double>(in.numel() / out.numel()) : 1;
  const StoreSum finish{{out.data, out.dtype}, op == ReduceOp::mean ? count : -1};
  if (op == ReduceOp::norm2)
    return dispatch_floating(context, in.dtype, [&](auto type) {
      using T = typename decltype(type)::type;
      reduce_strided<SumOfSquares<Compute<T>>, Compute<T>, T, false>(context, out, in, axes, finish);
    });
  dispatch_all(context, in.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using C = SumType<T>;
    if (op == ReduceOp::prod) reduce_strided<Product<C>, C, T, false>(context, out, in, axes, finish);
    else reduce_strided<Sum<C>, C, T, is_floating(dtype_of<T>)>(context, out, in, axes, finish);
  });
}

}  // namespace tensorlite::cuda
