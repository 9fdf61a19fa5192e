#include "gemm.hpp"

#include "gemm_epilogue.hpp"
#include "gemm_pack.hpp"
#include "parallel.hpp"

namespace tensorlite::cpu::TL_CPU_NS {
namespace {

constexpr std::int64_t kNoOffset = 0;
constexpr std::int64_t kSerialWork = 1 << 16;  // multiply-adds below which a second thread costs more than it gives

constexpr std::int64_t kBlockRowPanels = 4;  // panels of A packed at once

/// Elements of k packed at once: a panel of A stays in the first-level cache while those of B stream past it.
template <class T> std::int64_t block_depth(std::int64_t k) {
  constexpr std::int64_t limit = 1024 / sizeof(T);
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
  static constexpr bool kStaged = !std::is_same_v<T, In>;  // 16-bit results are summed in float first

  Block(const Context& context, const Gemm<In>& p, std::int64_t max_rows, std::int64_t max_columns, const T* bias)
      : p_(p),
        bias_(bias),
        depth_(block_depth<T>(p.k)),
        pitch_(round_up(max_columns, kLanes<T>)),
        workspace_(context, sizeof(T) * static_cast<std::size_t>(depth_ * (pitch_ + kBlockRowPanels * kTileRows) + 4 * kPackSlack<T> +
                                                                 (kStaged ? max_rows * pitch_ : 0))) {
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
      pack_panels(b_, Strip<In>{b + k0 * p_.b.row_stride, columns, p_.b.column_stride, depth, p_.b.row_stride}, ColumnPanels<T>{columns});
      const Epilogue<T> epilogue = {
          .bias = bias_ ? bias_ + n0 : nullptr, .activation = p_.activation, .accumulate = k0 > 0, .last = k0 + depth >= p_.k};
      multiply(a + k0 * p_.a.column_stride, c, rows, columns, depth, epilogue);
    }
  }

 private:
  void multiply(const In* a, In* c, std::int64_t rows, std::int64_t columns, std::int64_t depth, const Epilogue<T>& epilogue) {
    const std::int64_t blocks = ceil_div(rows, kBlockRowPanels * kTileRows);
    for (std::int64_t block = 0; block < blocks; ++block) {
      const std::int64_t i = part_begin(rows, blocks, block), height = part_begin(rows, blocks, block + 1) - i;
      const RowPanels panels{height};
      pack_panels(a_, Strip<In>{a + i * p_.a.row_stride, height, p_.a.row_stride, depth, p_.a.column_stride}, panels);
      for (std::int64_t panel = 0; panel < panels.count; ++panel)
        multiply_panel(a_ + panels.begin(panel) * depth, panels.width(panel), c + (i + panels.begin(panel)) * p_.c_stride,
                       staged_ + (i + panels.begin(panel)) * pitch_, columns, depth, epilogue);
    }
  }

  void multiply_panel(const T* a, std::int64_t height, In* c, T* staged, std::int64_t columns, std::int64_t depth,
                      const Epilogue<T>& epilogue) {
    const ColumnPanels<T> panels{columns};
    for (std::int64_t panel = 0; panel < panels.count; ++panel) {
      const std::int64_t j = panels.begin(panel);
      const TileInput<T> in{a, height, &kNoOffset, b_ + j * depth, panels.pitch(panel), depth};
      tile_to(in, height, panels.width(panel), c + j, staged + j, epilogue.at_column(j));
    }
  }

  void tile_to(const TileInput<T>& in, std::int64_t rows, std::int64_t columns, In* c, T* staged, const Epilogue<T>& epilogue) {
    const AForm form = AForm::k_major;
    if constexpr (kStaged) {
      run_tile(form, in, rows, columns, staged, pitch_, {.accumulate = epilogue.accumulate, .last = false});
      if (epilogue.last) finish_tile(staged, pitch_, c, p_.c_stride, rows, columns, epilogue);
    } else {
      run_tile(form, in, rows, columns, c, p_.c_stride, epilogue);
    }
  }

  const Gemm<In>& p_;
  const T* bias_;
  std::int64_t depth_, pitch_;
  Workspace workspace_;
  T *b_, *a_, *staged_;
};

}  // namespace

template <class In> void gemm(const Context& context, const Gemm<In>& p) {
  using T = GemmType<In>;
  if (p.batch == 0 || p.m == 0 || p.n == 0) return;
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
