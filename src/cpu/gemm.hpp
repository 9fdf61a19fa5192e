// Matrix product on packed panels: C = activation(A * B + bias), batched, operands with any strides.
#pragma once

#include "gemm_kernel.hpp"

#include <tensorlite/backend.hpp>

#include <type_traits>

namespace tensorlite::cpu::TL_CPU_NS {

/// The type that In's products are computed and summed in.
template <class In> using GemmType = std::conditional_t<std::is_same_v<In, double>, double, float>;

/// Strides in elements; any, zero and negative included.
template <class In> struct GemmOperand {
  const In* data;
  std::int64_t batch_stride, row_stride, column_stride;
};

/// C is row-major with unit column stride.
template <class In> struct Gemm {
  std::int64_t batch, m, n, k;
  GemmOperand<In> a, b;
  In* c;
  std::int64_t c_batch_stride, c_stride;
  const In* bias = nullptr;  ///< n values or null
  Activation activation = Activation::none;
};

/// For float, double, float16 and bfloat16. Bit-equal for any number of threads.
template <class In> void gemm(const Context& context, const Gemm<In>& problem);

/// count / parts in nearly equal parts: where part `i` starts.
inline std::int64_t part_begin(std::int64_t count, std::int64_t parts, std::int64_t i) {
  return count / parts * i + std::min(i, count % parts);
}
inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
inline std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }

}  // namespace tensorlite::cpu::TL_CPU_NS
