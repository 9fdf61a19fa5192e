// Matrix times vector where the inner axis is contiguous: dot products, nothing is packed and the matrix is read once.
#pragma once

#include "gemm.hpp"
#include "gemm_epilogue.hpp"
#include "parallel.hpp"

namespace tensorlite::cpu::TL_CPU_NS {

/// to[r * to_stride] = activation(sum over k of rows[r * row_stride + k] * vector[k] + bias[r * bias_stride]).
template <class T> struct DotProducts {
  const T* rows;
  std::int64_t count, row_stride, k;
  const T* vector;
  T* to;
  std::int64_t to_stride;
  const T* bias;  ///< null for none
  std::int64_t bias_stride;
  Activation activation;
};

/// `Rows` sums side by side; each adds in the same order whatever Rows is.
template <class T, int Rows> void dot_rows(const DotProducts<T>& d, std::int64_t first) {
  using namespace Eigen::internal;
  using P = Packet<T>;
  constexpr int L = kLanes<T>;
  const T* const rows = d.rows + first * d.row_stride;
  P even[Rows], odd[Rows];
  for (int r = 0; r < Rows; ++r) even[r] = odd[r] = pset1<P>(T(0));
  std::int64_t k = 0;
  for (; k + 2 * L <= d.k; k += 2 * L) {
    const P v0 = ploadu<P>(d.vector + k), v1 = ploadu<P>(d.vector + k + L);
    for (int r = 0; r < Rows; ++r) {
      even[r] = pmadd(ploadu<P>(rows + r * d.row_stride + k), v0, even[r]);
      odd[r] = pmadd(ploadu<P>(rows + r * d.row_stride + k + L), v1, odd[r]);
    }
  }
  for (int r = 0; r < Rows; ++r) {
    T sum = predux(padd(even[r], odd[r]));
    for (std::int64_t i = k; i < d.k; ++i) sum += rows[r * d.row_stride + i] * d.vector[i];
    if (d.bias) sum += d.bias[(first + r) * d.bias_stride];
    d.to[(first + r) * d.to_stride] = activate(sum, d.activation);
  }
}

template <class T> void dot_products(const DotProducts<T>& d) {
  constexpr int side_by_side = 4;
  parallel_for(d.count, 1 + 65536 / std::max<std::int64_t>(1, d.k), [&](std::int64_t begin, std::int64_t end) {
    std::int64_t r = begin;
    for (; r + side_by_side <= end; r += side_by_side) dot_rows<T, side_by_side>(d, r);
    for (; r < end; ++r) dot_rows<T, 1>(d, r);
  });
}

/// Does a product of a matrix and a vector that dot_products fits; false when it is none.
template <class T> bool gemm_as_dots(const Context& context, const Gemm<T>& p) {
  const bool row = p.m == 1 && (p.b.row_stride == 1 || p.k == 1), column = !row && p.n == 1 && (p.a.column_stride == 1 || p.k == 1);
  if (!row && !column) return false;
  const std::int64_t step = row ? p.a.column_stride : p.b.row_stride;
  const Workspace copy(context, step == 1 ? 0 : sizeof(T) * static_cast<std::size_t>(p.k));
  for (std::int64_t n = 0; n < p.batch; ++n) {
    const T *const a = p.a.data + n * p.a.batch_stride, *const b = p.b.data + n * p.b.batch_stride, *vector = row ? a : b;
    if (step != 1) {
      for (std::int64_t k = 0; k < p.k; ++k) copy.template data<T>()[k] = vector[k * step];
      vector = copy.template data<T>();
    }
    dot_products(DotProducts<T>{row ? b : a, row ? p.n : p.m, row ? p.b.column_stride : p.a.row_stride, p.k, vector,
                                p.c + n * p.c_batch_stride, row ? 1 : p.c_stride, p.bias, row ? 1 : 0, p.activation});
  }
  return true;
}

}  // namespace tensorlite::cpu::TL_CPU_NS
