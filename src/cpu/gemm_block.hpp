// The part of a matrix product that one thread does: one block of C over one range of k.
#pragma once

#include "gemm.hpp"
#include "gemm_epilogue.hpp"
#include "gemm_pack.hpp"

namespace tensorlite::cpu::TL_CPU_NS {

/// A product whose C may be written transposed.
template <class In> struct Product : Gemm<In> {
  std::int64_t c_column_stride = 1;
  bool bias_per_row = false;
};

struct Range {
  std::int64_t begin, end;
  std::int64_t size() const { return end - begin; }
};

/// How the operands of one product are read.
template <class T, class In> struct Plan {
  static constexpr bool kSameType = std::is_same_v<T, In>;  // else 16-bit results are summed in float first
  enum class A : std::uint8_t { in_place, rows, panels };   ///< rows: converted copies of rows; panels: packed k by k

  const Product<In>& p;
  std::int64_t depth;
  A a = A::panels;
  bool b_in_place = kSameType && p.b.column_stride == 1 && p.m <= (rows_are_near<T>(p.b.row_stride) ? 10 : 2) * kTileRows;
  bool staged = !kSameType || p.c_column_stride != 1;  ///< sums are kept aside until they are complete

  /// The way for blocks of C of `columns` columns: the wider they are, the more often packed rows are read again.
  A way_of_a(std::int64_t columns) const {
    if (p.a.column_stride != 1) return A::panels;
    if (!kSameType) return A::rows;
    return columns > 8 * kTileColumns<T> || rows_collide<T>(p.a.row_stride) ? A::panels : A::in_place;
  }
  /// Elements from row to row of packed B and of sums kept aside.
  std::int64_t pitch() const { return round_up(p.n, kLanes<T>); }
  /// From one copied row to the next: an odd number of cache lines.
  std::int64_t row_pitch() const { return (ceil_div(depth, 16) | 1) * 16; }

  const In* a_at(std::int64_t batch, std::int64_t i, std::int64_t k) const {
    return p.a.data + batch * p.a.batch_stride + i * p.a.row_stride + k * p.a.column_stride;
  }
  Strip<In> b_strip(std::int64_t batch, std::int64_t j, std::int64_t columns, std::int64_t k, std::int64_t count) const {
    return {p.b.data + batch * p.b.batch_stride + j * p.b.column_stride + k * p.b.row_stride, columns, p.b.column_stride, count,
            p.b.row_stride};
  }
  In* c_at(std::int64_t batch, std::int64_t i, std::int64_t j) const {
    return p.c + batch * p.c_batch_stride + i * p.c_stride + j * p.c_column_stride;
  }

  /// C of a block = activation(sums + bias), sums[(i - rows.begin) * sums_pitch + (j - columns.begin)].
  void finish(const T* sums, std::int64_t sums_pitch, std::int64_t batch, Range rows, Range columns, const T* bias) const {
    const auto put = [&](std::int64_t i, std::int64_t j) {
      T value = sums[(i - rows.begin) * sums_pitch + j - columns.begin];
      if (bias) value += bias[p.bias_per_row ? i : j];
      *c_at(batch, i, j) = static_cast<In>(activate(value, p.activation));
    };
    if (p.c_column_stride == 1) {
      for (std::int64_t i = rows.begin; i < rows.end; ++i)
        for (std::int64_t j = columns.begin; j < columns.end; ++j) put(i, j);
      return;
    }
    constexpr std::int64_t side_by_side = 16;
    for (std::int64_t i0 = rows.begin; i0 < rows.end; i0 += side_by_side)
      for (std::int64_t j = columns.begin; j < columns.end; ++j)
        for (std::int64_t i = i0; i < std::min(rows.end, i0 + side_by_side); ++i) put(i, j);
  }
};

/// Computes blocks, with scratch memory for the largest of them.
template <class T, class In> class Block {
  using Way = typename Plan<T, In>::A;

 public:
  struct Own {
    bool b, sums;  ///< whether B is packed here, and sums are kept here
  };

  Block(const Context& context, const Plan<T, In>& plan, std::int64_t max_rows, std::int64_t max_columns, Own own, const T* bias)
      : plan_(plan),
        p_(plan.p),
        bias_(bias),
        panel_rows_(plan.a == Way::panels ? kBlockRowPanels * kTileRows : kTileRows),
        sums_pitch_(own.sums ? round_up(max_columns, kLanes<T>) : plan.pitch()),
        workspace_(context, sizeof(T) * static_cast<std::size_t>(a_size() + (own.b ? b_size(max_columns) : 0) +
                                                                 (own.sums ? max_rows * sums_pitch_ : 0))) {
    a_ = workspace_.template data<T>();
    b_ = a_ + a_size();
    sums_ = b_ + (own.b ? b_size(max_columns) : 0);
  }

  /// C(rows, columns) over `k`. `shared_b`: all of this matrix's B, packed, or null. `partial`: where the sums of this range of k are left
  /// for others to finish, or null.
  void run(std::int64_t batch, Range rows, Range columns, Range k, const T* shared_b, T* partial) {
    T* const sums = partial ? partial + rows.begin * plan_.pitch() + columns.begin : sums_;
    const bool aside = plan_.staged || partial;
    for (std::int64_t k0 = k.begin; k0 == k.begin || k0 < k.end; k0 += plan_.depth) {
      const Range steps{k0, std::min(k.end, k0 + plan_.depth)};
      take_b(batch, columns, steps, shared_b);
      const bool last = steps.end >= k.end && !aside;
      const Epilogue<T> epilogue = {.bias = last && bias_ ? bias_ + columns.begin : nullptr,
                                    .activation = last ? p_.activation : Activation::none,
                                    .accumulate = k0 > k.begin,
                                    .last = last};
      multiply(batch, rows, columns, steps, sums, aside, epilogue);
    }
    if (aside && !partial) plan_.finish(sums, sums_pitch_, batch, rows, columns, bias_);
  }

 private:
  static constexpr std::int64_t kBlockRowPanels = 4;  // packed at once, side by side

  std::int64_t a_size() const {
    if (plan_.a == Way::in_place) return 0;
    return kTileRows * (plan_.a == Way::rows ? plan_.row_pitch() : kBlockRowPanels * plan_.depth) + 2 * kPackSlack<T>;
  }
  std::int64_t b_size(std::int64_t columns) const { return plan_.depth * round_up(columns, kLanes<T>) + 2 * kPackSlack<T>; }

  /// Packed by all threads before, packed here, or left where it is up to the last whole packet of columns.
  void take_b(std::int64_t batch, Range columns, Range k, const T* shared_b) {
    const std::int64_t depth = k.size();
    in_place_ = plan_.b_in_place ? columns.size() / kTileColumns<T> * kTileColumns<T> : 0;
    place_ = plan_.b_strip(batch, columns.begin, 0, k.begin, 0).data;
    if (shared_b) {
      packed_ = shared_b + k.begin * plan_.pitch() + columns.begin * depth;
      return;
    }
    packed_ = b_;
    if (const std::int64_t rest = columns.size() - in_place_; rest > 0)
      pack_panels(b_ + in_place_ * depth, plan_.b_strip(batch, columns.begin + in_place_, rest, k.begin, depth), ColumnPanels<T>{rest});
  }

  void multiply(std::int64_t batch, Range rows, Range columns, Range k, T* sums, bool aside, const Epilogue<T>& epilogue) {
    const std::int64_t blocks = ceil_div(rows.size(), panel_rows_);
    for (std::int64_t block = 0; block < blocks; ++block) {
      const std::int64_t first = rows.begin + part_begin(rows.size(), blocks, block);
      const RowPanels panels{rows.begin + part_begin(rows.size(), blocks, block + 1) - first};
      const In* const a = plan_.a_at(batch, first, k.begin);
      take_a(a, panels, k.size());
      for (std::int64_t panel = 0; panel < panels.count; ++panel) {
        const std::int64_t row = first + panels.begin(panel);
        const TileInput<T> in = panel_input(a, panels, panel, k.size());
        if (aside) multiply_panel(in, panels.width(panel), sums + (row - rows.begin) * sums_pitch_, sums_pitch_, columns.size(), epilogue);
        else if constexpr (Plan<T, In>::kSameType)
          multiply_panel(in, panels.width(panel), plan_.c_at(batch, row, columns.begin), p_.c_stride, columns.size(), epilogue);
      }
    }
  }

  void take_a(const In* a, const RowPanels& panels, std::int64_t depth) {
    if (plan_.a == Way::panels) pack_panels(a_, Strip<In>{a, panels.rows, p_.a.row_stride, depth, p_.a.column_stride}, panels);
    if (plan_.a == Way::rows)
      for (std::int64_t i = 0; i < panels.rows; ++i)
        std::transform(a + i * p_.a.row_stride, a + i * p_.a.row_stride + depth, a_ + i * plan_.row_pitch(),
                       [](In v) { return static_cast<T>(v); });
  }

  TileInput<T> panel_input(const In* a, const RowPanels& panels, std::int64_t panel, std::int64_t depth) const {
    if (plan_.a == Way::panels) return {a_ + panels.begin(panel) * depth, panels.width(panel), &kNoOffset, nullptr, 0, depth};
    if constexpr (Plan<T, In>::kSameType)
      if (plan_.a == Way::in_place) return {a + panels.begin(panel) * p_.a.row_stride, p_.a.row_stride, &kNoOffset, nullptr, 0, depth};
    return {a_, plan_.row_pitch(), &kNoOffset, nullptr, 0, depth};
  }

  void multiply_panel(TileInput<T> in, std::int64_t height, T* c, std::int64_t c_stride, std::int64_t columns,
                      const Epilogue<T>& epilogue) {
    const ColumnPanels<T> panels{columns};
    const AForm form = plan_.a == Way::panels ? AForm::k_major : AForm::row_major;
    for (std::int64_t panel = 0; panel < panels.count; ++panel) {
      const std::int64_t j = panels.begin(panel);
      if (plan_.a == Way::in_place) fetch_next_rows(in, height, panel, panels.count);
      in.b = packed_ + j * in.depth;
      in.b_stride = panels.pitch(panel);
      if constexpr (Plan<T, In>::kSameType)
        if (j < in_place_) {
          in.b = place_ + j;
          in.b_stride = p_.b.row_stride;
        }
      run_tile(form, in, height, panels.width(panel), c + j, c_stride, epilogue.at_column(j));
    }
  }

  /// The rows of the next panel of A, shared out to this one's tiles.
  static void fetch_next_rows(TileInput<T>& in, std::int64_t height, std::int64_t tile, std::int64_t tiles) {
    if (in.a_stride <= 0 || in.a_stride > 2 * in.depth) return;
    in.ahead_step = height * in.a_stride * static_cast<std::int64_t>(sizeof(T)) / (tiles * in.depth);
    in.ahead = reinterpret_cast<const char*>(in.a + height * in.a_stride) + tile * in.depth * in.ahead_step;
  }

  static constexpr std::int64_t kNoOffset = 0;

  const Plan<T, In>& plan_;
  const Product<In>& p_;
  const T* bias_;
  std::int64_t panel_rows_, sums_pitch_;
  Workspace workspace_;
  T *a_, *b_, *sums_;
  const T* packed_ = nullptr;  ///< B of this block of k and these columns, as panels
  const In* place_ = nullptr;  ///< the same in place, of which the first in_place_ columns are read
  std::int64_t in_place_ = 0;
};

}  // namespace tensorlite::cpu::TL_CPU_NS
