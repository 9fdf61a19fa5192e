// Exponentials of a line of scores and their sum, for lines along memory (rows) and for neighbouring lines side by side (columns).
#pragma once

#include "reduce_steps.hpp"

#include <array>
#include <vector>

namespace tensorlite::cpu::TL_CPU_NS {

inline constexpr std::int64_t kLines = 64;      ///< lines side by side
inline constexpr std::int64_t kShortLine = 32;  ///< shorter rows are transposed, kLines at a time: a vector then holds one element of many

/// Largest of a row.
template <class T> T row_max(const T* in, std::int64_t n) {
  T largest = -std::numeric_limits<T>::infinity();
  for (std::int64_t i = 0; i < n; i += kReducePiece)
    largest =
        reduce_ops::Max::combine(largest, static_cast<T>(reduce_piece<T, reduce_ops::Max>(in + i, std::min(kReducePiece, n - i), T(0))));
  return largest;
}

/// f(Vec of in) to out (which may be in), element by element.
template <class T, class F> void map_row(T* out, const T* in, std::int64_t n, F&& f) {
  std::int64_t i = 0;
  for (; i + Vec<T>::kSize <= n; i += Vec<T>::kSize) f(Vec<T>::load(in + i)).store(out + i);
  if (i < n) f(Vec<T>::load(in + i, n - i)).store(out + i, n - i);
}

/// exps = exp(in - largest) and their sum.
template <class T> double row_exponentials(T* exps, const T* in, std::int64_t n, T largest) {
  const Vec<T> center(largest);
  double sum = 0;
  for (std::int64_t i = 0; i < n; i += kReducePiece) {
    const std::int64_t piece = std::min(kReducePiece, n - i);
    map_row(exps + i, in + i, piece, [&](Vec<T> x) { return exp(x - center); });
    sum += reduce_piece<T, reduce_ops::Sum>(exps + i, piece, T(0));
  }
  return sum;
}
/// The sum alone.
template <class T> double row_exp_sum(const T* in, std::int64_t n, T largest) {
  double sum = 0;
  T exps[256];
  for (std::int64_t i = 0; i < n; i += 256) sum += row_exponentials(exps, in + i, std::min<std::int64_t>(256, n - i), largest);
  return sum;
}

/// f(j) for every vector of lanes that covers the first `count` lines.
template <class T, class F> void for_each_lane(std::int64_t count, F&& f) {
  for (std::int64_t j = 0; j < count; j += Vec<T>::kSize) f(j);
}

// Columns: up to kLines lines of n elements side by side, element i of line j at [i * kLines + j]. Lanes up to the next whole vector
// are computed too: they hold a copy of the last line.

template <class T> void columns_max(const T* in, std::int64_t n, std::int64_t count, T* largest) {
  for_each_lane<T>(count, [&](std::int64_t j) {
    Vec<T> best(-std::numeric_limits<T>::infinity());
    for (std::int64_t i = 0; i < n; ++i) best = reduce_ops::Max::combine(best, Vec<T>::load(in + i * kLines + j));
    best.store(largest + j);
  });
}

/// sums[j] = sum over i of f(i * kLines + j, j), a Vec; in T for kReduceFlush elements at a time, then in double.
template <class T, class F> void columns_sum(std::int64_t n, std::int64_t count, T* sums, F&& f) {
  double totals[kLines] = {};
  for (std::int64_t first = 0; first < n; first += kReduceFlush) {
    const std::int64_t end = std::min(n, first + kReduceFlush);
    for_each_lane<T>(count, [&](std::int64_t j) {
      Vec<T> sum(0);
      for (std::int64_t i = first; i < end; ++i) sum += f(i * kLines + j, j);
      sum.store(sums + j);
    });
    if (n <= kReduceFlush) return;
    for (std::int64_t j = 0; j < count; ++j) totals[j] += static_cast<double>(sums[j]);
  }
  for (std::int64_t j = 0; j < kLines; ++j) sums[j] = static_cast<T>(totals[std::min(j, count - 1)]);
}

/// exps = exp(in - largest) and their sums; exps may be in.
template <class T> void columns_exponentials(T* exps, const T* in, std::int64_t n, std::int64_t count, const T* largest, T* sums) {
  columns_sum(n, count, sums, [&](std::int64_t at, std::int64_t j) {
    const Vec<T> e = exp(Vec<T>::load(in + at) - Vec<T>::load(largest + j));
    e.store(exps + at);
    return e;
  });
}

/// out[i] of line j = f(Vec of in, j); out may be in.
template <class T, class F> void map_columns(T* out, const T* in, std::int64_t n, std::int64_t count, F&& f) {
  for_each_lane<T>(count, [&](std::int64_t j) {
    for (std::int64_t at = j; at < n * kLines; at += kLines) f(Vec<T>::load(in + at), j).store(out + at);
  });
}

/// The lines of a dense [outer, n, inner] view; line l is [l / inner, :, l % inner].
struct LineShape {
  std::int64_t outer, n, inner;
  std::int64_t lines() const { return outer * inner; }
  /// Lines are taken side by side rather than one after the other.
  bool by_columns() const { return inner > 1 || n <= kShortLine; }
};

/// f(first element's offset, lane, count) for stretches of neighbouring lines among `count` lines from `first` on; inner > 1.
template <class F> void for_each_stretch(const LineShape& shape, std::int64_t first, std::int64_t count, F&& f) {
  for (std::int64_t lane = 0; lane < count;) {
    const std::int64_t line = first + lane, at = line % shape.inner, width = std::min(count - lane, shape.inner - at);
    f(line / shape.inner * shape.n * shape.inner + at, lane, width);
    lane += width;
  }
}

template <class T> void load_columns(const Source<T>& source, const LineShape& shape, std::int64_t first, std::int64_t count, T* columns) {
  const std::int64_t n = shape.n;
  if (shape.inner == 1) {
    T buffer[kLines * kShortLine];
    const T* rows = source.run(first * n, count * n, buffer);
    for (std::int64_t j = 0; j < count; ++j)
      for (std::int64_t i = 0; i < n; ++i) columns[i * kLines + j] = rows[j * n + i];
  } else {
    for_each_stretch(shape, first, count, [&](std::int64_t offset, std::int64_t lane, std::int64_t width) {
      for (std::int64_t i = 0; i < n; ++i) source.copy(columns + i * kLines + lane, offset + i * shape.inner, 1, width);
    });
  }
  for (std::int64_t j = count; j % Vec<T>::kSize != 0; ++j)
    for (std::int64_t i = 0; i < n; ++i) columns[i * kLines + j] = columns[i * kLines + count - 1];
}

template <class T>
void store_columns(const Sink<T>& sink, const LineShape& shape, std::int64_t first, std::int64_t count, const T* columns) {
  const std::int64_t n = shape.n;
  if (shape.inner == 1) {
    T buffer[kLines * kShortLine];
    T* rows = sink.target(first * n, buffer);
    for (std::int64_t j = 0; j < count; ++j)
      for (std::int64_t i = 0; i < n; ++i) rows[j * n + i] = columns[i * kLines + j];
    sink.commit(first * n, buffer, count * n);
  } else {
    for_each_stretch(shape, first, count, [&](std::int64_t offset, std::int64_t lane, std::int64_t width) {
      for (std::int64_t i = 0; i < n; ++i) sink.store(offset + i * shape.inner, 1, columns + i * kLines + lane, width);
    });
  }
}

/// Calls rows(line) for every line of its range, or columns(first, count) for groups of up to kLines lines, in parallel. `make` gives the
/// two, with scratch of their own, once per thread's range.
template <class F> void for_each_line_group(const LineShape& shape, F&& make) {
  const std::int64_t group = shape.by_columns() ? kLines : 1, groups = (shape.lines() + group - 1) / group;
  parallel_for(groups, std::max<std::int64_t>(1, 8192 / (group * std::max<std::int64_t>(1, shape.n))),
               [&](std::int64_t begin, std::int64_t end) {
                 auto run = make();
                 for (std::int64_t g = begin; g < end; ++g) run(g * group, std::min(group, shape.lines() - g * group));
               });
}

}  // namespace tensorlite::cpu::TL_CPU_NS
