#include "elementwise.cuh"
#include "gemm.hpp"

namespace tensorlite::cuda {
namespace {

template <class T> struct BiasActivation {
  Activation activation;
  __device__ T operator()(T x, T bias) const {
    const Compute<T> value = load(x) + load(bias);
    if constexpr (is_floating(dtype_of<T>)) {
      if (activation == Activation::gelu) return store<T>(elementwise::Gelu::value(value, elementwise::Params<Compute<T>>{}));
    }
    return store<T>(activation == Activation::relu ? elementwise::select(value <= Compute<T>(0), Compute<T>(0), value) : value);
  }
};

}  // namespace

void add_bias(const Context& context, const View& x, const View& bias, Activation activation) {
  if (x.numel() == 0 || (!bias.present && activation == Activation::none)) return;
  View spread = bias;
  if (bias.present) {
    spread.sizes = x.sizes;
    spread.strides = Dims::filled(x.dim(), 0);
    spread.strides.back() = 1;
  }
  const Axes<3> axes = axes_of<3>(x, {&x, &spread});
  Operands<3> operands;
  set_pointers<3>(operands, x, {&x, &spread});
  dispatch_all(context, x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if constexpr (!std::is_same_v<T, bool>)
      elementwise<T, T, T>(context, axes, operands, BiasActivation<T>{activation}, BiasActivation<T>{activation});
  });
}

}  // namespace tensorlite::cuda
