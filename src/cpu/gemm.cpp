#include "gemm.hpp"

#include "gemm_block.hpp"
#include "gemm_dot.hpp"
#include "parallel.hpp"

#include <algorithm>

namespace tensorlite::cpu::TL_CPU_NS {
namespace {

constexpr std::int64_t kSerialWork = 1 << 16;  // multiply-adds below which a second thread costs more than it gives
constexpr double kTeamWork = 400e3;            // multiply-adds of one thread in the time that waking and joining the others takes
constexpr std::int64_t kDepthBytes = 1024;
constexpr std::int64_t kPanelBytes = 1024 << 10;           // of packed B that one thread works through: a second-level cache
constexpr std::int64_t kSharedBytes = 96 << 20;            // of B packed for all threads; more is packed by each for itself, block by block
constexpr std::int64_t kFewTiles = 48, kChunkDepth = 512;  // fewer tiles than this and a deep k: k is cut as well

/// Elements of k that are added up in registers. Sums are formed in this order: it must not depend on the number of threads.
template <class T> std::int64_t block_depth(std::int64_t n, std::int64_t k) {
  const std::int64_t limit = (n <= 3 * kTileColumns<T> ? 4 : 1) * kDepthBytes / static_cast<std::int64_t>(sizeof(T));
  return round_up(ceil_div(std::max<std::int64_t>(k, 1), ceil_div(std::max<std::int64_t>(k, 1), limit)), 4);
}

/// How C is cut into tasks: `rows` x `columns` blocks of every matrix of the batch, and `chunks` of k whose sums are added at the end.
struct Cut {
  std::int64_t rows, columns, chunks;
  bool share_b;  ///< B is packed once, by all threads together

  std::int64_t blocks() const { return rows * columns * chunks; }
};

/// The cut that keeps the threads busy for the least packing.
template <class T, class In> Cut choose_cut(const Plan<T, In>& plan, std::int64_t chunks, int threads) {
  const Product<In>& p = plan.p;
  const std::int64_t row_panels = ceil_div(p.m, kTileRows), column_panels = ceil_div(p.n, kTileColumns<T>);
  const std::int64_t max_columns =
      std::max<std::int64_t>(kPanelBytes / (plan.depth * static_cast<std::int64_t>(sizeof(T))), kTileColumns<T>);
  const bool may_share = p.batch * p.k * p.n * static_cast<std::int64_t>(sizeof(T)) <= kSharedBytes;
  Cut best{};
  double best_cost = 0;
  for (std::int64_t columns = ceil_div(p.n, max_columns); columns <= column_panels; ++columns) {
    const std::int64_t others = columns * chunks * p.batch;
    for (std::int64_t waves = 1; waves <= 4; ++waves) {
      const std::int64_t rows = std::clamp<std::int64_t>(waves * threads / others, 1, row_panels);
      const double turns = static_cast<double>(ceil_div(rows * others, threads));
      const double m = static_cast<double>(ceil_div(row_panels, rows) * ceil_div(p.m, row_panels));
      const double n = static_cast<double>(ceil_div(column_panels, columns) * kTileColumns<T>);
      const bool share = rows > 1 && may_share;
      // An element that is packed costs as much as some products.
      const double a_cost = plan.way_of_a(static_cast<std::int64_t>(n)) == Plan<T, In>::A::in_place ? 2 : 10,
                   b_cost = plan.b_in_place ? 0 : 10;
      const double shared = share && b_cost > 0
                                ? b_cost * static_cast<double>(p.n * p.batch * chunks) / threads + kTeamWork / static_cast<double>(p.k + 1)
                                : 0;
      const double cost = turns * (m * n + a_cost * m + (share ? 0 : b_cost * n)) + shared;
      if (best_cost == 0 || cost < best_cost) {
        best = {rows, columns, chunks, share};
        best_cost = cost;
      }
    }
    if (others >= 4 * threads) break;
  }
  return best;
}

/// One product, cut into tasks.
template <class T, class In> class Gemms {
 public:
  Gemms(const Context& context, const Product<In>& p, bool serial)
      : context_(context),
        p_(p),
        plan_{.p = p, .depth = block_depth<T>(p.n, p.k)},
        bias_(context, p.bias, p.bias_per_row ? p.m : p.n),
        threads_(serial ? 1 : num_threads()),
        cut_(cut()),
        shared_(context, cut_.share_b && !plan_.b_in_place ? sizeof(T) * static_cast<std::size_t>(p.batch * p.k * plan_.pitch()) : 0),
        partial_(context, cut_.chunks > 1 ? sizeof(T) * static_cast<std::size_t>(cut_.chunks * p.batch * p.m * plan_.pitch()) : 0) {}

  void run() {
    if (shared_.data()) pack_shared();
    const std::int64_t tasks = p_.batch * cut_.blocks();
    parallel_for(tasks, threads_ == 1 ? tasks : 1, [&](std::int64_t begin, std::int64_t end) {
      Block<T, In> block(context_, plan_, ceil_div(p_.m, cut_.rows), block_columns(cut_),
                         {!shared_.data(), plan_.staged && cut_.chunks == 1}, bias_.data());
      for (std::int64_t task = begin; task < end; ++task) run_task(block, task);
    });
    if (partial_.data()) combine();
  }

 private:
  std::int64_t column_panels() const { return ceil_div(p_.n, kTileColumns<T>); }
  std::int64_t block_columns(const Cut& cut) const {
    return std::min(plan_.pitch(), ceil_div(column_panels(), cut.columns) * kTileColumns<T>);
  }
  std::int64_t depth_blocks() const { return std::max<std::int64_t>(1, ceil_div(p_.k, plan_.depth)); }

  Cut cut() {
    const std::int64_t k_chunks = chunks();  // may change the depth
    const Cut best = choose_cut(plan_, k_chunks, threads_);
    plan_.a = plan_.way_of_a(block_columns(best));
    return best;
  }

  /// Parts of k: from the shape alone, as they decide the order of sums.
  std::int64_t chunks() {
    const std::int64_t tiles = p_.batch * ceil_div(p_.m, kTileRows) * column_panels();
    if (tiles >= kFewTiles || p_.k < 2 * kChunkDepth) return 1;
    const std::int64_t chunks = std::min(ceil_div(kFewTiles, tiles), p_.k / kChunkDepth);
    plan_.depth = std::min(plan_.depth, round_up(ceil_div(p_.k, chunks), 4));
    return std::min(chunks, depth_blocks());
  }

  void run_task(Block<T, In>& block, std::int64_t task) {
    const std::int64_t batch = task / cut_.blocks(), chunk = task % cut_.blocks() / (cut_.rows * cut_.columns);
    const std::int64_t row = task % (cut_.rows * cut_.columns) / cut_.columns, column = task % cut_.columns;
    const auto column_begin = [&](std::int64_t i) {
      return std::min(p_.n, part_begin(column_panels(), cut_.columns, i) * kTileColumns<T>);
    };
    const auto k_begin = [&](std::int64_t i) { return std::min(p_.k, part_begin(depth_blocks(), cut_.chunks, i) * plan_.depth); };
    const Range rows{part_begin(p_.m, cut_.rows, row), part_begin(p_.m, cut_.rows, row + 1)};
    block.run(batch, rows, {column_begin(column), column_begin(column + 1)}, {k_begin(chunk), k_begin(chunk + 1)},
              shared_.data() ? shared_.template data<T>() + batch * p_.k * plan_.pitch() : nullptr,
              partial_.data() ? partial_.template data<T>() + (chunk * p_.batch + batch) * p_.m * plan_.pitch() : nullptr);
  }

  void pack_shared() {
    const std::int64_t panels = column_panels(), tasks = p_.batch * depth_blocks() * panels;
    parallel_for(tasks, threads_ == 1 ? tasks : 1, [&](std::int64_t begin, std::int64_t end) {
      while (begin < end) {
        const std::int64_t first = begin % panels, last = std::min(panels, first + end - begin), block = begin / panels;
        const std::int64_t k0 = block % depth_blocks() * plan_.depth, depth = std::min(plan_.depth, p_.k - k0), j = first * kTileColumns<T>;
        const std::int64_t columns = std::min(p_.n, last * kTileColumns<T>) - j, batch = block / depth_blocks();
        pack_panels(shared_.template data<T>() + (batch * p_.k + k0) * plan_.pitch() + j * depth,
                    plan_.b_strip(batch, j, columns, k0, depth), ColumnPanels<T>{columns});
        begin += last - first;
      }
    });
  }

  /// Adds up the chunks of k in their order.
  void combine() {
    const std::int64_t rows = p_.batch * p_.m, pitch = plan_.pitch(), grain = 1 + kSerialWork / (pitch * cut_.chunks);
    parallel_for(rows, threads_ == 1 ? rows : grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        T* const sum = partial_.template data<T>() + row * pitch;
        for (std::int64_t chunk = 1; chunk < cut_.chunks; ++chunk) {
          const T* const more = sum + chunk * rows * pitch;
          for (std::int64_t j = 0; j < p_.n; ++j) sum[j] += more[j];
        }
        plan_.finish(sum, pitch, row / p_.m, {row % p_.m, row % p_.m + 1}, {0, p_.n}, bias_.data());
      }
    });
  }

  const Context& context_;
  const Product<In>& p_;
  Plan<T, In> plan_;
  PaddedBias<T> bias_;
  int threads_;
  Cut cut_;
  Workspace shared_, partial_;
};

/// One product with more rows where every matrix of the batch meets the same B and their rows follow each other evenly.
template <class In> Gemm<In> fold_batch(Gemm<In> p) {
  if (p.batch > 1 && p.b.batch_stride == 0 && p.a.batch_stride == p.m * p.a.row_stride && p.c_batch_stride == p.m * p.c_stride) {
    p.m *= p.batch;
    p.batch = 1;
  }
  return p;
}

/// Where k is the inner axis of both operands, one of them has to be transposed while it is packed, and the other is read in place: the
/// larger one, as A of the transposed product.
template <class In> Product<In> larger_in_place(const Gemm<In>& p) {
  Product<In> q{p, 1, false};
  constexpr std::int64_t element_cost = 7;  // of writing an element of C transposed, in elements packed
  if (p.a.column_stride != 1 || p.b.row_stride != 1 || p.k * (p.n - p.m) < element_cost * p.m * p.n) return q;
  q.a = p.b.transposed();
  q.b = p.a.transposed();
  std::swap(q.m, q.n);
  std::swap(q.c_stride, q.c_column_stride);
  q.bias_per_row = true;
  return q;
}

}  // namespace

template <class In> void gemm(const Context& context, const Gemm<In>& problem) {
  using T = GemmType<In>;
  if (problem.batch == 0 || problem.m == 0 || problem.n == 0) return;
  const Gemm<In> p = fold_batch(problem);
  if constexpr (std::is_same_v<T, In>)
    if (gemm_as_dots(context, p) || gemm_as_dot_table(context, p)) return;
  if (p.n == 1 && p.m > 1 && !p.bias && p.c_stride == 1)  // one row in place of one column
    return gemm(context,
                Gemm<In>{p.batch, 1, p.m, p.k, p.b.transposed(), p.a.transposed(), p.c, p.c_batch_stride, p.m, nullptr, p.activation});
  const bool serial = static_cast<double>(p.batch * p.m) * static_cast<double>(p.n) * static_cast<double>(p.k) < kSerialWork;
  const Product<In> product = larger_in_place(p);
  Gemms<T, In>(context, product, serial).run();
}

template void gemm<float>(const Context&, const Gemm<float>&);
template void gemm<double>(const Context&, const Gemm<double>&);
template void gemm<float16>(const Context&, const Gemm<float16>&);
template void gemm<bfloat16>(const Context&, const Gemm<bfloat16>&);

}  // namespace tensorlite::cpu::TL_CPU_NS
