// What batch and layer normalisation share: parameters as T, and two column sums that do not depend on the number of threads.
#pragma once

#include "reduce_steps.hpp"

#include <tensorlite/backend.hpp>

#include <vector>

namespace tensorlite::cpu::TL_CPU_NS {

/// An optional parameter of n elements as T; `value` everywhere when it is absent.
template <class T> std::vector<T> parameter(const View& view, std::int64_t n, T value) {
  std::vector<T> result(static_cast<std::size_t>(n), value);
  if (view && n > 0) Source<T>(view).copy(result.data(), 0, 1, n);
  return result;
}

/// The result for no rows; the view may be absent.
inline void fill_zero(const View& view) {
  if (view) std::fill_n(view.ptr<unsigned char>(), view.nbytes(), static_cast<unsigned char>(0));
}

/// Two sums per column of [rows, C] data, in blocks of rows whose size depends on C alone. Within a block sums are in T for a bounded
/// number of rows; blocks are added in order, in double.
template <class T> class ColumnSums {
 public:
  ColumnSums(const Context& context, std::int64_t rows, std::int64_t columns)
      : rows_(rows),
        columns_(columns),
        rows_per_block_(std::max<std::int64_t>(64, kReduceChunk / 2 / columns)),
        blocks_((rows - 1) / rows_per_block_ + 1),
        partials_(context, static_cast<std::size_t>(2 * blocks_ * columns) * sizeof(double)) {}

  /// Lanes of one block: add rows to first and second, then call added().
  struct Lanes {
    std::int64_t width, columns, pending = 0;
    std::vector<T> first, second;
    double* total;
    void added() {
      if (++pending == kReduceFlush) flush();
    }
    void flush() {
      for (std::int64_t j = 0, c = 0; j < width; ++j, c = c + 1 == columns ? 0 : c + 1) {
        total[c] += static_cast<double>(first[j]);
        total[columns + c] += static_cast<double>(second[j]);
        first[j] = second[j] = T(0);
      }
      pending = 0;
    }
  };

  /// f(first row, end row, lanes) for every block, in parallel; lanes are `fold` rows wide.
  template <class F> void run(std::int64_t fold, F&& f) {
    const std::int64_t grain = std::max<std::int64_t>(1, kReduceChunk / 4 / (std::min(rows_, rows_per_block_) * columns_));
    parallel_for(blocks_, grain, [&](std::int64_t begin, std::int64_t end) {
      const auto width = static_cast<std::size_t>(fold * columns_);
      Lanes lanes{fold * columns_, columns_, 0, std::vector<T>(width), std::vector<T>(width), nullptr};
      for (std::int64_t block = begin; block < end; ++block) {
        lanes.total = partials_.template data<double>() + 2 * block * columns_;
        std::fill_n(lanes.total, 2 * columns_, 0.0);
        f(block * rows_per_block_, std::min(rows_, (block + 1) * rows_per_block_), lanes);
        lanes.flush();
      }
    });
    double* total = partials_.template data<double>();
    for (std::int64_t block = 1; block < blocks_; ++block)
      for (std::int64_t j = 0; j < 2 * columns_; ++j) total[j] += total[2 * block * columns_ + j];
  }
  const double* first() const { return partials_.template data<double>(); }
  const double* second() const { return first() + columns_; }

 private:
  std::int64_t rows_, columns_, rows_per_block_, blocks_;
  Workspace partials_;
};

}  // namespace tensorlite::cpu::TL_CPU_NS
