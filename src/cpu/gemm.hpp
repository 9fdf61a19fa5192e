// Matrix product on packed panels: C = activation(A * B + bias), batched, operands with any strides.
#pragma once

#include "gemm_kernel.hpp"

#include <tensorlite/backend.hpp>

namespace tensorlite::cpu::TL_CPU_NS {

/// Strides in elements; any, zero and negative included.
template <class In> struct GemmOperand {
  const In* data;
  std::int64_t batch_stride, row_stride, column_stride;
  GemmOperand transposed() const { return {data, batch_stride, column_stride, row_stride}; }
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

}  // namespace tensorlite::cpu::TL_CPU_NS
