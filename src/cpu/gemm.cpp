#include "gemm.hpp"

#include "gemm_dot.hpp"
#include "gemm_epilogue.hpp"
#include "gemm_pack.hpp"
#include "parallel.hpp"

namespace tensorlite::cpu::TL_CPU_NS {
namespace {

constexpr std::int64_t kNoOffset = 0;
constexpr std::int64_t kSerialWork = 1 << 16;  // multiply-adds below which a second thread costs more than it gives

constexpr std::int64_t kBlockRowPanels = 4;  // panels of A packed at once

constexpr std::int64_t kDepthBytes = 1024;

/// Columns of B that are too few to repay packing A.
template <class T> inline constexpr std::int64_t kInPlaceColumns = 3 * kTileColumns<T>;

/// Elements of k packed at once: a panel of A stays in the first-level cache while those of B stream past it.
template <class T> std::int64_t block_depth(std::int64_t k, std::int64_t bytes) {
  const std::int64_t limit = bytes / static_cast<std::int64_t>(sizeof(T));
  return round_up(ceil_div(std::max<std::int64_t>(k, 1), ceil_div(std::max<std::int64_t>(k, 1), limit)), 4);
}

/// How C is cut into tasks: `rows` x `columns` blocks of every matrix of the batch.
struct Cut {
  std::int64_t row_blocks, column_blocks;
};

/// Blocks small enough for packed B to stay in the second-level cache, then as many as keep the threads busy for the least packing.
template <class T, class In> Cut choose_cut(const Gemm<In>& p, std::int64_t threads) {
  constexpr std::int64_t max_columns = 4096 / sizeof(T), max_rows = 1024;
  const std::int64_t min_rows = ceil_div(p.m, max_rows), min_columns = ceil_div(p.n, max_columns);
  Cut best{min_rows, min_columns};
  double best_cost = 0;
  for (std::int64_t columns = min_columns; columns <= ceil_div(p.n, kTileColumns<T>); columns *= 2) {
    std::int64_t rows = min_rows;
    while ((rows * columns * p.batch) % threads != 0 && rows < ceil_div(p.m, kTileRows)) ++rows;
    const double block_m = static_cast<double>(ceil_div(p.m, rows)), block_n = static_cast<double>(ceil_div(p.n, columns));
    const double cost = static_cast<double>(ceil_div(rows * columns * p.batch, threads)) * (block_m * block_n + 10 * (block_m + block_n));
    if (best_cost == 0 || cost < best_cost) {
      best = {rows, columns};
      best_cost = cost;
    }
    if (columns * min_rows * p.batch >= threads) break;
  }
  return best;
}

/// One block of C, by one thread.
template <class T, class In> class Block {
 public:
  static constexpr bool kSameType = std::is_same_v<T, In>;  // else 16-bit results are summed in float first

  Block(const Context& context, const Gemm<In>& p, std::int64_t max_rows, std::int64_t max_columns, const T* bias)
      : p_(p),
        bias_(bias),
        a_in_place_(kSameType && p.a.column_stride == 1 && p.n <= kInPlaceColumns<T> && p.a.row_stride * sizeof(T) % 4096 != 0),
        b_in_place_(kSameType && p.b.column_stride == 1 && p.m <= 2 * kTileRows),
        depth_(block_depth<T>(p.k, a_in_place_ ? 4 * kDepthBytes : kDepthBytes)),
        pitch_(round_up(max_columns, kLanes<T>)),
        workspace_(context, sizeof(T) * static_cast<std::size_t>(depth_ * (pitch_ + kBlockRowPanels * kTileRows) + 4 * kPackSlack<T> +
                                                                 (kSameType ? 0 : max_rows * pitch_))) {
    b_ = workspace_.template data<T>();
    a_ = b_ + depth_ * pitch_ + 2 * kPackSlack<T>;
    staged_ = a_ + depth_ * kBlockRowPanels * kTileRows + 2 * kPackSlack<T>;
  }

  void run(std::int64_t batch, std::int64_t m0, std::int64_t m1, std::int64_t n0, std::int64_t n1) {
    const In* a = p_.a.data + batch * p_.a.batch_stride + m0 * p_.a.row_stride;
    const In* b = p_.b.data + batch * p_.b.batch_stride + n0 * p_.b.column_stride;
    In* c = p_.c + batch * p_.c_batch_stride + m0 * p_.c_stride + n0;
    const std::int64_t rows = m1 - m0, columns = n1 - n0;
    for (std::int64_t k0 = 0; k0 == 0 || k0 < p_.k; k0 += depth_) {
      const std::int64_t depth = std::min(depth_, p_.k - k0);
      take_b(b + k0 * p_.b.row_stride, columns, depth);
      const Epilogue<T> epilogue = {
          .bias = bias_ ? bias_ + n0 : nullptr, .activation = p_.activation, .accumulate = k0 > 0, .last = k0 + depth >= p_.k};
      multiply(a + k0 * p_.a.column_stride, c, rows, columns, depth, epilogue);
    }
  }

 private:
  /// Packed, or left where it is up to the last whole packet of columns when A has too few rows to repay a copy.
  void take_b(const In* b, std::int64_t columns, std::int64_t depth) {
    place_ = b;
    placed_ = b_in_place_ ? columns / kTileColumns<T> * kTileColumns<T> : 0;
    if (placed_ < columns)
      pack_panels(b_ + placed_ * depth,
                  Strip<In>{b + placed_ * p_.b.column_stride, columns - placed_, p_.b.column_stride, depth, p_.b.row_stride},
                  ColumnPanels<T>{columns - placed_});
  }

  void multiply(const In* a, In* c, std::int64_t rows, std::int64_t columns, std::int64_t depth, const Epilogue<T>& epilogue) {
    const std::int64_t blocks = ceil_div(rows, kBlockRowPanels * kTileRows);
    for (std::int64_t block = 0; block < blocks; ++block) {
      const std::int64_t i = part_begin(rows, blocks, block), height = part_begin(rows, blocks, block + 1) - i;
      const RowPanels panels{height};
      if (!a_in_place_) pack_panels(a_, Strip<In>{a + i * p_.a.row_stride, height, p_.a.row_stride, depth, p_.a.column_stride}, panels);
      for (std::int64_t panel = 0; panel < panels.count; ++panel) {
        const std::int64_t row = i + panels.begin(panel);
        multiply_panel(a_panel(a + row * p_.a.row_stride, panels, panel, depth), panels.width(panel), c + row * p_.c_stride,
                       staged_ + row * pitch_, columns, epilogue);
      }
    }
  }

  /// What a tile has to know of A: its first panel, in place or packed.
  TileInput<T> a_panel(const In* a, const RowPanels& panels, std::int64_t panel, std::int64_t depth) const {
    TileInput<T> in{a_ + panels.begin(panel) * depth, panels.width(panel), &kNoOffset, nullptr, 0, depth};
    if constexpr (kSameType)
      if (a_in_place_) {
        in.a = a;
        in.a_stride = p_.a.row_stride;
      }
    return in;
  }

  void multiply_panel(TileInput<T> in, std::int64_t height, In* c, T* staged, std::int64_t columns, const Epilogue<T>& epilogue) {
    const ColumnPanels<T> panels{columns};
    for (std::int64_t panel = 0; panel < panels.count; ++panel) {
      const std::int64_t j = panels.begin(panel);
      if (a_in_place_) fetch_next_rows(in, height, panel, panels.count);
      in.b = b_ + j * in.depth;
      in.b_stride = panels.pitch(panel);
      if constexpr (kSameType)
        if (j < placed_) {
          in.b = place_ + j;
          in.b_stride = p_.b.row_stride;
        }
      tile_to(in, height, panels.width(panel), c + j, staged + j, epilogue.at_column(j));
    }
  }

  /// The rows of the next panel of A, shared out to this one's tiles.
  static void fetch_next_rows(TileInput<T>& in, std::int64_t height, std::int64_t tile, std::int64_t tiles) {
    if (in.a_stride <= 0 || in.a_stride > 2 * in.depth) return;
    in.ahead_step = height * in.a_stride * static_cast<std::int64_t>(sizeof(T)) / (tiles * in.depth);
    in.ahead = reinterpret_cast<const char*>(in.a + height * in.a_stride) + tile * in.depth * in.ahead_step;
  }

  void tile_to(const TileInput<T>& in, std::int64_t rows, std::int64_t columns, In* c, T* staged, const Epilogue<T>& epilogue) {
    const AForm form = a_in_place_ ? AForm::row_major : AForm::k_major;
    if constexpr (!kSameType) {
      run_tile(form, in, rows, columns, staged, pitch_, {.accumulate = epilogue.accumulate, .last = false});
      if (epilogue.last) finish_tile(staged, pitch_, c, p_.c_stride, rows, columns, epilogue);
    } else {
      run_tile(form, in, rows, columns, c, p_.c_stride, epilogue);
    }
  }

  const Gemm<In>& p_;
  const T* bias_;
  bool a_in_place_, b_in_place_;
  std::int64_t depth_, pitch_;
  Workspace workspace_;
  T *b_, *a_, *staged_;
  const In* place_ = nullptr;  ///< B of this block of k, whose first placed_ columns are read there
  std::int64_t placed_ = 0;
};

/// One product with more rows where every matrix of the batch meets the same B and their rows follow each other evenly.
template <class In> Gemm<In> fold_batch(Gemm<In> p) {
  if (p.batch > 1 && p.b.batch_stride == 0 && p.a.batch_stride == p.m * p.a.row_stride && p.c_batch_stride == p.m * p.c_stride) {
    p.m *= p.batch;
    p.batch = 1;
  }
  return p;
}

}  // namespace

template <class In> void gemm(const Context& context, const Gemm<In>& problem) {
  using T = GemmType<In>;
  if (problem.batch == 0 || problem.m == 0 || problem.n == 0) return;
  const Gemm<In> p = fold_batch(problem);
  if constexpr (std::is_same_v<T, In>)
    if (gemm_as_dots(context, p) || gemm_as_dot_table(p)) return;
  if (p.n == 1 && p.m > 1 && !p.bias && p.c_stride == 1)  // one row in place of one column
    return gemm(context,
                Gemm<In>{p.batch, 1, p.m, p.k, p.b.transposed(), p.a.transposed(), p.c, p.c_batch_stride, p.m, nullptr, p.activation});
  const PaddedBias<T> bias(context, p.bias, p.n);
  const bool serial = static_cast<double>(p.batch * p.m) * static_cast<double>(p.n) * static_cast<double>(p.k) < kSerialWork;
  const Cut cut = choose_cut<T>(p, serial ? 1 : num_threads());
  const std::int64_t blocks = cut.row_blocks * cut.column_blocks, column_panels = ceil_div(p.n, kTileColumns<T>);
  const std::int64_t tasks = p.batch * blocks;
  const std::int64_t max_columns = ceil_div(column_panels, cut.column_blocks) * kTileColumns<T>;
  parallel_for(tasks, serial ? tasks : 1, [&](std::int64_t begin, std::int64_t end) {
    Block<T, In> block(context, p, ceil_div(p.m, cut.row_blocks), std::min(max_columns, p.n), bias.data());
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t row = task % blocks / cut.column_blocks, column = task % cut.column_blocks;
      const auto column_begin = [&](std::int64_t i) {
        return std::min(p.n, part_begin(column_panels, cut.column_blocks, i) * kTileColumns<T>);
      };
      block.run(task / blocks, part_begin(p.m, cut.row_blocks, row), part_begin(p.m, cut.row_blocks, row + 1), column_begin(column),
                column_begin(column + 1));
    }
  });
}

template void gemm<float>(const Context&, const Gemm<float>&);
template void gemm<double>(const Context&, const Gemm<double>&);
template void gemm<float16>(const Context&, const Gemm<float16>&);
template void gemm<bfloat16>(const Context&, const Gemm<bfloat16>&);

}  // namespace tensorlite::cpu::TL_CPU_NS
