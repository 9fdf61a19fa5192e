// Products whose inner axis is contiguous in both operands and whose result is thin: dot products, nothing is packed and the larger
// operand is read once.
#pragma once

#include "gemm.hpp"
#include "gemm_epilogue.hpp"
#include "gemm_pack.hpp"
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

/// Every row of x with every row of y: c[i * c_x + j * c_y] = activation(x_i . y_j + bias). x is the one with fewer rows.
template <class T> struct DotTable {
  const T* x;
  std::int64_t x_rows, x_stride;
  const T* y;
  std::int64_t y_rows, y_stride;
  std::int64_t k;
  T* c;
  std::int64_t c_x, c_y;
  const T* bias;  ///< null for none
  std::int64_t bias_x, bias_y;
  Activation activation;
};

/// Rows of x and of y in one tile: its sums, a packet of each y and one of x fill the register file.
inline constexpr int kDotTile = kTileRows == 14 ? 5 : 3;

/// The tile at (i, j) over k in [first, last). Rows past the end repeat the last one and are not stored.
template <class T> void dot_tile(const DotTable<T>& d, std::int64_t i, std::int64_t j, std::int64_t first, std::int64_t last) {
  using namespace Eigen::internal;
  using P = Packet<T>;
  constexpr int S = kDotTile, L = kLanes<T>;
  const T *x[S], *y[S];
  for (int r = 0; r < S; ++r) {
    x[r] = d.x + std::min(i + r, d.x_rows - 1) * d.x_stride;
    y[r] = d.y + std::min(j + r, d.y_rows - 1) * d.y_stride;
  }
  P sum[S][S];
  tile::unroll<S>([&](auto r) TL_INLINE_LAMBDA { tile::unroll<S>([&](auto q) TL_INLINE_LAMBDA { sum[r][q] = pset1<P>(T(0)); }); });
  std::int64_t k = first;
  for (; k + L <= last; k += L) {
    P yk[S];
    tile::unroll<S>([&](auto q) TL_INLINE_LAMBDA { yk[q] = ploadu<P>(y[q] + k); });
    tile::unroll<S>([&](auto r) TL_INLINE_LAMBDA {
      const P xk = ploadu<P>(x[r] + k);
      tile::unroll<S>([&](auto q) TL_INLINE_LAMBDA { sum[r][q] = pmadd(xk, yk[q], sum[r][q]); });
    });
  }
  T totals[S][S];
  tile::unroll<S>([&](auto r) TL_INLINE_LAMBDA { tile::unroll<S>([&](auto q) TL_INLINE_LAMBDA { totals[r][q] = predux(sum[r][q]); }); });
  for (int r = 0; r < std::min<std::int64_t>(S, d.x_rows - i); ++r)
    for (int q = 0; q < std::min<std::int64_t>(S, d.y_rows - j); ++q) {
      T total = totals[r][q];
      for (std::int64_t l = k; l < last; ++l) total += x[r][l] * y[q][l];
      T& c = d.c[(i + r) * d.c_x + (j + q) * d.c_y];
      if (first > 0) total += c;
      if (last == d.k) {
        if (d.bias) total += d.bias[(i + r) * d.bias_x + (j + q) * d.bias_y];
        total = activate(total, d.activation);
      }
      c = total;
    }
}

template <class T> void dot_table(const DotTable<T>& d) {
  constexpr std::int64_t steps = 2048;  // of k: what all rows of x hold of it stays in the second-level cache
  parallel_for(ceil_div(d.y_rows, kDotTile), 1 + 65536 / (d.x_rows * d.k), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = 0; k < d.k; k += steps)
      for (std::int64_t j = begin; j < end; ++j)
        for (std::int64_t i = 0; i < d.x_rows; i += kDotTile) dot_tile(d, i, j * kDotTile, k, std::min(d.k, k + steps));
  });
}

/// Does a thin product with long inner axes, of which the thicker operand's is contiguous; false when it is none.
template <class T> bool gemm_as_dot_table(const Context& context, const Gemm<T>& p) {
  constexpr std::int64_t thin = 16, deep = 256;  // beyond them packing pays
  const bool rows_are_thin = p.m <= p.n;
  if (std::min(p.m, p.n) > thin || p.k < deep || (rows_are_thin ? p.b.row_stride : p.a.column_stride) != 1) return false;
  const std::int64_t rows = std::min(p.m, p.n), k_stride = rows_are_thin ? p.a.column_stride : p.b.row_stride;
  const std::int64_t row_stride = rows_are_thin ? p.a.row_stride : p.b.column_stride;
  const bool copied = k_stride != 1 || rows_collide<T>(row_stride);
  const std::int64_t pitch = (ceil_div(p.k, 16) | 1) * 16;
  const Workspace copy(context, copied ? sizeof(T) * static_cast<std::size_t>(rows * pitch + kPackSlack<T>) : 0);
  for (std::int64_t n = 0; n < p.batch; ++n) {
    const T *const a = p.a.data + n * p.a.batch_stride, *const b = p.b.data + n * p.b.batch_stride;
    const T* x = rows_are_thin ? a : b;
    if (copied) {
      pack_strip(copy.template data<T>(), pitch, Strip<T>{x, p.k, k_stride, rows, row_stride});
      x = copy.template data<T>();
    }
    const std::int64_t x_stride = copied ? pitch : row_stride;
    T* const c = p.c + n * p.c_batch_stride;
    if (rows_are_thin)
      dot_table(DotTable<T>{x, rows, x_stride, b, p.n, p.b.column_stride, p.k, c, p.c_stride, 1, p.bias, 0, 1, p.activation});
    else dot_table(DotTable<T>{x, rows, x_stride, a, p.m, p.a.row_stride, p.k, c, 1, p.c_stride, p.bias, 1, 0, p.activation});
  }
  return true;
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
