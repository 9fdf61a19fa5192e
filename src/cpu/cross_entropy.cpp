// Cross-entropy of class labels, fused with log-softmax.
#include "kernels.hpp"
#include "softmax.hpp"

namespace tensorlite::cpu::TL_CPU_NS {
namespace {

void check_labels(const Context& context, const View& labels, std::int64_t classes, std::int64_t ignore_index) {
  const std::int64_t* label = labels.ptr<std::int64_t>();
  for (std::int64_t row = 0; row < labels.numel(); ++row)
    TL_CHECK((label[row] >= 0 && label[row] < classes) || label[row] == ignore_index, IndexError, context.op, "label ", label[row],
             " of row ", row, " is outside of [0, ", classes, "): there are ", classes, " classes; use ignore_index (now ", ignore_index,
             ") for rows to leave out");
}

/// What one row's loss is made of. Differences to the largest logit are taken first: they are small where logits are huge.
struct RowTerms {
  double largest, exp_sum;
  double at_label;  ///< the label's logit
  double mean;      ///< of all logits; for smoothing
};

struct LossWriter {
  const Sink<double> losses, log_sums;
  double smoothing;
  void operator()(std::int64_t row, const RowTerms& t) const {
    const double log_exp_sum = std::log(t.exp_sum), log_sum = t.largest + log_exp_sum;
    double loss = (t.largest - t.at_label) + log_exp_sum;
    if (smoothing != 0) loss = (1 - smoothing) * loss + smoothing * ((t.largest - t.mean) + log_exp_sum);
    losses.store(row, 1, &loss, 1);
    log_sums.store(row, 1, &log_sum, 1);
  }
  void ignore(std::int64_t row) const {
    const double zero = 0;
    losses.store(row, 1, &zero, 1);
    log_sums.store(row, 1, &zero, 1);
  }
};

template <class T> double row_sum(const T* in, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; i += kReducePiece) sum += reduce_piece<T, reduce_ops::Sum>(in + i, std::min(kReducePiece, n - i), T(0));
  return sum;
}

template <class T>
void losses_of_columns(const T* logits, std::int64_t n, std::int64_t first, std::int64_t count, const std::int64_t* labels,
                       std::int64_t ignore_index, T* exps, const LossWriter& write) {
  T largest[kLines], sums[kLines], totals[kLines];
  columns_max(logits, n, count, largest);
  columns_exponentials(exps, logits, n, count, largest, sums);
  if (write.smoothing != 0) columns_sum(n, count, totals, [&](std::int64_t at, std::int64_t) { return Vec<T>::load(logits + at); });
  for (std::int64_t j = 0; j < count; ++j) {
    const std::int64_t label = labels[first + j];
    if (label == ignore_index) write.ignore(first + j);
    else write(first + j, {largest[j], sums[j], logits[label * kLines + j], write.smoothing != 0 ? totals[j] / static_cast<double>(n) : 0});
  }
}

template <class T>
void cross_entropy_of(const View& losses, const View& log_sum_exp, const View& logits, const std::int64_t* labels,
                      const CrossEntropyParams& params) {
  const LineShape shape{logits.size(0), logits.size(1), 1};
  const std::int64_t n = shape.n, room = shape.by_columns() ? n * kLines : n;
  const Source<T> source(logits);
  const LossWriter write{Sink<double>(losses), Sink<double>(log_sum_exp), params.label_smoothing};
  for_each_line_group(shape, [&] {
    return
        [&, a = std::vector<T>(room), b = std::vector<T>(shape.by_columns() ? room : 0)](std::int64_t first, std::int64_t count) mutable {
          if (shape.by_columns()) {
            load_columns(source, shape, first, count, a.data());
            return losses_of_columns(a.data(), n, first, count, labels, params.ignore_index, b.data(), write);
          }
          if (labels[first] == params.ignore_index) return write.ignore(first);
          const T* row = source.run(first * n, n, a.data());
          const T largest = row_max(row, n);
          const double mean = write.smoothing != 0 ? row_sum(row, n) / static_cast<double>(n) : 0;
          write(first, {largest, row_exp_sum(row, n, largest), row[labels[first]], mean});
        };
  });
}

/// g * (softmax - target), with target = (1 - smoothing) at the label + smoothing / n everywhere.
template <class T> class GradientWriter {
 public:
  GradientWriter(const View& grad_logits, const View& grad_losses, const View& logits, const std::int64_t* labels,
                 const CrossEntropyParams& params)
      : shape_{logits.size(0), logits.size(1), 1},
        source_(logits),
        gradients_(grad_losses),
        gradient_stride_(grad_losses.stride(0)),
        sink_(grad_logits),
        labels_(labels),
        params_(params) {}

  void run() {
    const std::int64_t n = shape_.n, room = shape_.by_columns() ? n * kLines : n;
    for_each_line_group(shape_, [&] {
      return [&, a = std::vector<T>(room)](std::int64_t first, std::int64_t count) mutable {
        if (!shape_.by_columns()) return row(first, a.data());
        load_columns(source_, shape_, first, count, a.data());
        columns(first, count, a.data());
        store_columns(sink_, shape_, first, count, a.data());
      };
    });
  }

 private:
  T spread() const { return static_cast<T>(params_.label_smoothing / static_cast<double>(shape_.n)); }
  T peak() const { return static_cast<T>(1 - params_.label_smoothing); }

  void row(std::int64_t at, T* buffer) const {
    const std::int64_t n = shape_.n;
    T* out = sink_.target(at * n, buffer);
    if (labels_[at] == params_.ignore_index) {
      std::fill_n(out, n, T(0));
    } else {
      T g;
      gradients_.copy(&g, at * gradient_stride_, gradient_stride_, 1);
      const T* in = source_.run(at * n, n, buffer);
      const Vec<T> scale(static_cast<T>(g / row_exponentials(out, in, n, row_max(in, n)))), everywhere(g * spread());
      map_row(out, out, n, [&](Vec<T> e) { return e * scale - everywhere; });
      out[labels_[at]] -= g * peak();
    }
    sink_.commit(at * n, buffer, n);
  }

  void columns(std::int64_t first, std::int64_t count, T* lines) const {
    T largest[kLines], scale[kLines], g[kLines] = {};
    const std::int64_t n = shape_.n;
    gradients_.copy(g, first * gradient_stride_, gradient_stride_, count);
    columns_max(lines, n, count, largest);
    columns_exponentials(lines, lines, n, count, largest, scale);
    for_each_lane<T>(count, [&](std::int64_t j) { (Vec<T>::load(g + j) / Vec<T>::load(scale + j)).store(scale + j); });
    const Vec<T> share(spread());
    map_columns(lines, lines, n, count,
                [&](Vec<T> e, std::int64_t j) { return e * Vec<T>::load(scale + j) - share * Vec<T>::load(g + j); });
    for (std::int64_t j = 0; j < count; ++j) {
      const std::int64_t label = labels_[first + j];
      if (label != params_.ignore_index) lines[label * kLines + j] -= g[j] * peak();
      else
        for (std::int64_t i = 0; i < n; ++i) lines[i * kLines + j] = T(0);
    }
  }

  LineShape shape_;
  Source<T> source_, gradients_;
  std::int64_t gradient_stride_;
  Sink<T> sink_;
  const std::int64_t* labels_;
  CrossEntropyParams params_;
};

/// In pieces of a fixed size, so that the result does not depend on the number of threads.
void mean_of(const View& mean, const View& share, const View& losses, const std::int64_t* labels, std::int64_t ignore_index) {
  constexpr std::int64_t kPiece = 16384;
  struct Part {
    double sum = 0;
    std::int64_t count = 0;
  };
  const std::int64_t rows = losses.numel();
  std::vector<Part> parts(static_cast<std::size_t>((rows + kPiece - 1) / kPiece));
  const Source<double> source(losses);
  parallel_for(static_cast<std::int64_t>(parts.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> values(static_cast<std::size_t>(std::min(rows, kPiece)));
    for (std::int64_t p = begin; p < end; ++p) {
      const std::int64_t first = p * kPiece, count = std::min(kPiece, rows - first);
      Part& part = parts[static_cast<std::size_t>(p)];
      source.copy(values.data(), first, 1, count);
      for (std::int64_t i = 0; i < count; ++i) {
        if (labels[first + i] == ignore_index) continue;
        part.sum += values[static_cast<std::size_t>(i)];
        ++part.count;
      }
    }
  });
  Part all;
  for (const Part& part : parts) all.sum += part.sum, all.count += part.count;
  const double result[2] = {all.sum / static_cast<double>(all.count), 1 / static_cast<double>(all.count)};
  Sink<double>(mean).store(0, 1, &result[0], 1);
  Sink<double>(share).store(0, 1, &result[1], 1);
}

}  // namespace

void mean_of_rows(const Context&, const View& mean, const View& share, const View& losses, const View& labels, std::int64_t ignore_index) {
  mean_of(mean, share, losses, labels.ptr<std::int64_t>(), ignore_index);
}

void cross_entropy(const Context& context, const View& losses, const View& log_sum_exp, const View& logits, const View& labels,
                   CrossEntropyParams params) {
  check_labels(context, labels, logits.size(1), params.ignore_index);
  if (logits.numel() == 0) {  // no rows, or no classes and every row ignored
    std::fill_n(losses.ptr<unsigned char>(), losses.nbytes(), static_cast<unsigned char>(0));
    std::fill_n(log_sum_exp.ptr<unsigned char>(), log_sum_exp.nbytes(), static_cast<unsigned char>(0));
    return;
  }
  if (logits.dtype == DType::float64) cross_entropy_of<double>(losses, log_sum_exp, logits, labels.ptr<std::int64_t>(), params);
  else cross_entropy_of<float>(losses, log_sum_exp, logits, labels.ptr<std::int64_t>(), params);
}

/// The sum of exponentials is taken anew: log_sum_exp, rounded, is too coarse where logits are in the thousands.
void cross_entropy_backward(const Context& context, const View& grad_logits, const View& grad_losses, const View& logits, const View&,
                            const View& labels, CrossEntropyParams params) {
  check_labels(context, labels, logits.size(1), params.ignore_index);
  if (logits.numel() == 0) return;
  if (logits.dtype == DType::float64) GradientWriter<double>(grad_logits, grad_losses, logits, labels.ptr<std::int64_t>(), params).run();
  else GradientWriter<float>(grad_logits, grad_losses, logits, labels.ptr<std::int64_t>(), params).run();
}

}  // namespace tensorlite::cpu::TL_CPU_NS
