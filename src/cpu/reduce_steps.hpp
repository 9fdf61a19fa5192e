// The inner loops of reductions: one step reduces a chunk of the reduced elements for a tile of outputs.
#pragma once

#include "reduce_plan.hpp"
#include "vec.hpp"

#include <tensorlite/elementwise.hpp>

#include <limits>

namespace tensorlite::cpu::TL_CPU_NS {

/// What partial results are kept in: double for floating types.
template <class T> using AccType = std::conditional_t<std::is_floating_point_v<T>, double, std::int64_t>;

namespace reduce_ops {
using elementwise::exp;
using elementwise::select;

// map(x, c): what is reduced, of an element x and the center c of its output; combine: associative, keeps a NaN; identity.
struct Sum {
  static constexpr bool kCentered = false;
  template <class T> static constexpr T identity() { return T(0); }
  template <class V> static V map(V x, V) { return x; }
  template <class V> static V combine(V a, V b) { return a + b; }
};
struct Product : Sum {
  template <class T> static constexpr T identity() { return T(1); }
  template <class V> static V combine(V a, V b) { return a * b; }
};
struct Max : Sum {
  template <class T> static constexpr T identity() {
    return std::is_floating_point_v<T> ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
  }
  template <class V> static V combine(V a, V b) { return select((a < b) | (b != b), b, a); }
};
struct Min : Sum {
  template <class T> static constexpr T identity() {
    return std::is_floating_point_v<T> ? std::numeric_limits<T>::infinity() : std::numeric_limits<T>::max();
  }
  template <class V> static V combine(V a, V b) { return select((b < a) | (b != b), b, a); }
};
struct SumOfSquares : Sum {
  template <class V> static V map(V x, V) { return x * x; }
};
struct SumOfDeviations : Sum {
  static constexpr bool kCentered = true;
  template <class V> static V map(V x, V c) { return x - c; }
};
struct SumOfSquaredDeviations : Sum {
  static constexpr bool kCentered = true;
  template <class V> static V map(V x, V c) { return (x - c) * (x - c); }
};
struct SumOfExponentials : Sum {
  static constexpr bool kCentered = true;
  template <class V> static V map(V x, V c) { return exp(x - c); }
};
}  // namespace reduce_ops

/// Vec for float and double; integers go one by one, the compiler widens their loops.
template <class T> struct Lane {
  using V = T;
  static constexpr int kSize = 1;
  static T load(const T* from) { return *from; }
  static void store(T value, T* to) { *to = value; }
};
template <class T>
requires(std::is_floating_point_v<T>) struct Lane<T> {
  using V = Vec<T>;
  static constexpr int kSize = Vec<T>::kSize;
  static V load(const T* from) { return V::load(from); }
  static void store(V value, T* to) { value.store(to); }
};

/// Reduces up to kReducePiece contiguous elements.
template <class T, class Op> AccType<T> reduce_piece(const T* from, std::int64_t count, T center) {
  using L = Lane<T>;
  constexpr int size = L::kSize;
  T result = Op::template identity<T>();
  std::int64_t i = 0;
  if (count >= size) {
    const typename L::V c(center);
    auto mapped = [&](std::int64_t at) { return Op::map(L::load(from + at), c); };
    typename L::V acc = mapped(0);
    i = size;
    if (count >= 4 * size) {
      typename L::V a1 = mapped(size), a2 = mapped(2 * size), a3 = mapped(3 * size);
      for (i = 4 * size; i + 4 * size <= count; i += 4 * size) {
        acc = Op::combine(acc, mapped(i));
        a1 = Op::combine(a1, mapped(i + size));
        a2 = Op::combine(a2, mapped(i + 2 * size));
        a3 = Op::combine(a3, mapped(i + 3 * size));
      }
      acc = Op::combine(Op::combine(acc, a1), Op::combine(a2, a3));
    }
    for (; i + size <= count; i += size) acc = Op::combine(acc, mapped(i));
    T lanes[size];
    L::store(acc, lanes);
    for (int half = size / 2; half > 0; half /= 2)
      for (int k = 0; k < half; ++k) lanes[k] = Op::combine(lanes[k], lanes[k + half]);
    result = lanes[0];
  }
  for (; i < count; ++i) result = Op::combine(result, Op::map(from[i], center));
  return static_cast<AccType<T>>(result);
}

/// lanes[j] = lanes[j] combined with column j of `Rows` rows.
template <class T, class Op, int Rows> void reduce_into(T* lanes, const T* const* rows, const T* centers, std::int64_t width) {
  using L = Lane<T>;
  auto column = [&]<class V>(V acc, auto load, std::int64_t j) {
    V c{};
    if constexpr (Op::kCentered) c = load(centers + j);
    auto mapped = [&](int row) { return Op::map(load(rows[row] + j), c); };
    if constexpr (Rows == 4) return Op::combine(acc, Op::combine(Op::combine(mapped(0), mapped(1)), Op::combine(mapped(2), mapped(3))));
    else return Op::combine(acc, mapped(0));
  };
  std::int64_t j = 0;
  for (; j + L::kSize <= width; j += L::kSize)
    L::store(column(
                 L::load(lanes + j), [](const T* p) { return L::load(p); }, j),
             lanes + j);
  for (; j < width; ++j)
    lanes[j] = column(
        lanes[j], [](const T* p) { return *p; }, j);
}

/// One step for a tile: reduces elements [begin, end) of the reduced axes into result[0..tile.count). `centers` has one value per output.
template <class T>
using ReduceStep = void (*)(const ReducePlan& plan, const Source<T>& source, const ReduceTile& tile, std::int64_t begin, std::int64_t end,
                            const T* centers, AccType<T>* result);

template <class T, class Op>
void reduce_by_rows(const ReducePlan& plan, const Source<T>& source, const ReduceTile& tile, std::int64_t begin, std::int64_t end,
                    const T* centers, AccType<T>* result) {
  using Acc = AccType<T>;
  const std::int64_t stride = plan.reduced.inner_stride(0);
  T buffer[kReducePiece];
  for (std::int64_t o = 0; o < tile.count; ++o) {
    const T center = Op::kCentered ? centers[o] : T(0);
    Acc acc = Op::template identity<Acc>();
    auto add_run = [&](std::int64_t offset, std::int64_t count) {
      for (std::int64_t done = 0; done < count; done += kReducePiece) {
        const std::int64_t piece = std::min(kReducePiece, count - done);
        acc = Op::combine(acc, reduce_piece<T, Op>(source.run(offset + done * stride, stride, piece, buffer), piece, center));
      }
    };
    const std::int64_t base = tile.in_offset + o * tile.in_stride;
    if (plan.reduced.sizes.size() == 1) add_run(base + begin * stride, end - begin);
    else
      for_each_run(plan.reduced, begin, end,
                   [&](const auto& offsets, std::int64_t, std::int64_t count) { add_run(base + offsets[0], count); });
    result[o] = acc;
  }
}

/// Partial results of reduce_by_columns: in T for a bounded number of rows, then in AccType<T>. Narrow rows that follow each other
/// without a gap are taken `fold` at a time, as one row.
template <class T, class Op> struct ColumnLanes {
  using Acc = AccType<T>;
  ColumnLanes(Acc* result_, std::int64_t count_, std::int64_t fold_, const T* centers_)
      : result(result_), count(count_), fold(fold_), width(count_ * fold_), centers(centers_) {
    std::fill_n(lanes, width, Op::template identity<T>());
    std::fill_n(result, count, Op::template identity<Acc>());
    if (!Op::kCentered || fold == 1) return;
    for (std::int64_t j = 0; j < width; ++j) folded_centers[j] = centers_[j % count];
    centers = folded_centers;
  }
  template <int Rows> void add(const T* const* rows, std::int64_t row_width) {
    reduce_into<T, Op, Rows>(lanes, rows, centers, row_width);
    if ((pending += Rows) >= kReduceFlush) flush();
  }
  void flush() {
    for (std::int64_t f = 0; f < fold; ++f)
      for (std::int64_t j = 0; j < count; ++j) result[j] = Op::combine(result[j], static_cast<Acc>(lanes[f * count + j]));
    std::fill_n(lanes, width, Op::template identity<T>());
    pending = 0;
  }

  Acc* result;
  std::int64_t count, fold, width, pending = 0;
  const T* centers;
  T lanes[kReduceTile], folded_centers[kReduceTile];
};

template <class T, class Op>
void reduce_by_columns(const ReducePlan& plan, const Source<T>& source, const ReduceTile& tile, std::int64_t begin, std::int64_t end,
                       const T* centers, AccType<T>* result) {
  const std::int64_t stride = plan.reduced.inner_stride(0);
  const bool gapless = tile.in_stride == 1 && stride == tile.count;
  const std::int64_t fold = gapless && tile.count < 64 ? 128 / tile.count : 1;
  ColumnLanes<T, Op> lanes(result, tile.count, fold, centers);
  T buffers[4][kReduceTile];
  auto row_at = [&](std::int64_t offset, std::int64_t width, int slot) {
    return source.run(offset, fold == 1 ? tile.in_stride : 1, width, buffers[slot]);
  };
  for_each_run(plan.reduced, begin, end, [&](const auto& offsets, std::int64_t, std::int64_t count) {
    const std::int64_t base = tile.in_offset + offsets[0], wide = count / fold;
    const T* rows[4];
    std::int64_t r = 0;
    for (; r + 4 <= wide; r += 4) {
      for (int k = 0; k < 4; ++k) rows[k] = row_at(base + (r + k) * fold * stride, lanes.width, k);
      lanes.template add<4>(rows, lanes.width);
    }
    for (; r < wide; ++r) {
      rows[0] = row_at(base + r * fold * stride, lanes.width, 0);
      lanes.template add<1>(rows, lanes.width);
    }
    for (r *= fold; r < count; ++r) {
      rows[0] = row_at(base + r * stride, tile.count, 0);
      lanes.template add<1>(rows, tile.count);
    }
  });
  lanes.flush();
}

template <class T, class Op> ReduceStep<T> reduce_step(const ReducePlan& plan) {
  return plan.by_columns ? &reduce_by_columns<T, Op> : &reduce_by_rows<T, Op>;
}

}  // namespace tensorlite::cpu::TL_CPU_NS
