#include "dispatch.hpp"
#include "gemm.hpp"
#include "kernels.hpp"

namespace tensorlite::cpu::TL_CPU_NS {
namespace {

template <class T>
void float_matmul(const Context& context, const View& out, const View& a, const View& b, const View& bias, Activation activation) {
  Gemm<T> p{out.size(0),
            out.size(1),
            out.size(2),
            a.size(2),
            {a.ptr<const T>(), a.stride(0), a.stride(1), a.stride(2)},
            {b.ptr<const T>(), b.stride(0), b.stride(1), b.stride(2)},
            out.ptr<T>(),
            out.size(1) * out.size(2),
            out.size(2)};
  if (bias) p.bias = bias.ptr<const T>();
  p.activation = activation;
  gemm(context, p);
}

/// Integers wrap around; only relu of the activations has an integer meaning.
template <class T> void integer_matmul(const View& out, const View& a, const View& b, const View& bias, Activation activation) {
  using U = std::make_unsigned_t<T>;
  const std::int64_t m = out.size(1), n = out.size(2), k = a.size(2), sa = a.stride(2), sb = b.stride(2);
  parallel_for(out.size(0) * m, std::max<std::int64_t>(1, 32768 / std::max<std::int64_t>(1, n * k)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t row = begin; row < end; ++row) {
                   T* c = out.ptr<T>() + row * n;
                   const T* pa = a.ptr<const T>() + row / m * a.stride(0) + row % m * a.stride(1);
                   const T* pb = b.ptr<const T>() + row / m * b.stride(0);
                   for (std::int64_t j = 0; j < n; ++j) c[j] = bias ? bias.ptr<const T>()[j] : T(0);
                   for (std::int64_t l = 0; l < k; ++l, pa += sa, pb += b.stride(1))
                     for (std::int64_t j = 0; j < n; ++j) c[j] = static_cast<T>(U(c[j]) + U(U(*pa) * U(pb[j * sb])));
                   if (activation == Activation::relu)
                     for (std::int64_t j = 0; j < n; ++j) c[j] = std::max(c[j], T(0));
                 }
               });
}

}  // namespace

void matmul(const Context& context, const View& out, const View& a, const View& b, const View& bias, Activation activation) {
  switch (out.dtype) {
    case DType::int32: return integer_matmul<std::int32_t>(out, a, b, bias, activation);
    case DType::int64: return integer_matmul<std::int64_t>(out, a, b, bias, activation);
    case DType::uint8: return integer_matmul<std::uint8_t>(out, a, b, bias, activation);
    default:
      dispatch_floating(context.op, out.dtype,
                        [&](auto tag) { float_matmul<typename decltype(tag)::type>(context, out, a, b, bias, activation); });
  }
}

}  // namespace tensorlite::cpu::TL_CPU_NS
