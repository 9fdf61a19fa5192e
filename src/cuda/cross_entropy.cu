// Class-index cross-entropy, fused with log-softmax, and its gradient.
#include "accumulators.cuh"
#include "index_check.hpp"
#include "reduction.cuh"

namespace tensorlite::cuda {
namespace {

/// What a row's loss needs: its log of the sum of exponentials and, for label smoothing, its sum.
template <class C> struct RowSums {
  LogSumExp<C> exponentials;
  C plain = 0;
  __device__ void merge(const RowSums& o) {
    exponentials.merge(o.exponentials);
    plain += o.plain;
  }
};

template <class T> struct LogitRows {
  const T* logits;
  std::int64_t classes;
  __device__ const T* line(std::int64_t row) const { return logits + row * classes; }
  __device__ T load(const T* line, std::int64_t i) const { return line[i]; }
  __device__ void add(RowSums<Compute<T>>& sums, T x, std::int64_t) const {
    sums.exponentials.add(cuda::load(x), 0);
    sums.plain += cuda::load(x);
  }
};

template <class T> struct StoreLoss {
  using C = Compute<T>;
  C *losses, *log_sum_exp;
  const T* logits;
  const std::int64_t* labels;
  std::int64_t classes, ignore_index;
  C smoothing;
  IndexCheck check;
  __device__ void operator()(std::int64_t row, const RowSums<C>& sums) const {
    const C lse = sums.exponentials.result();
    const std::int64_t label = labels[row];
    log_sum_exp[row] = lse;
    losses[row] = 0;
    if (label == ignore_index) return;
    if (label < 0 || label >= classes) return check.report(row, label);
    C loss = lse - load(logits[row * classes + label]);
    if (smoothing > 0) loss = (1 - smoothing) * loss + smoothing * (lse - sums.plain / static_cast<C>(classes));
    losses[row] = loss;
  }
};

template <class T> struct LogitGradient {
  using C = Compute<T>;
  T* grad_logits;
  const C* grad_losses;
  const T* logits;
  const C* log_sum_exp;
  const std::int64_t* labels;
  std::int64_t classes, ignore_index, gradient_stride;
  C smoothing;
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t row = i / classes, c = i - row * classes, label = labels[row];
    if (label == ignore_index) {
      grad_logits[i] = store<T>(C(0));
      return;
    }
    const C target = (c == label ? 1 - smoothing : C(0)) + smoothing / static_cast<C>(classes);
    grad_logits[i] = store<T>(grad_losses[row * gradient_stride] * (exp(load(logits[i]) - log_sum_exp[row]) - target));
  }
};

/// The rows that count: their losses' sum, their number.
template <class C> struct CountedSum {
  C sum = 0;
  std::int64_t count = 0;
  __device__ void merge(const CountedSum& o) {
    sum += o.sum;
    count += o.count;
  }
};

template <class T> struct CountedRows {
  using C = Compute<T>;
  struct Loaded {
    T loss;
    bool counts;
  };
  const T* losses;
  const std::int64_t* labels;
  std::int64_t ignore_index;
  __device__ int line(std::int64_t) const { return 0; }
  __device__ Loaded load(int, std::int64_t i) const { return {losses[i], labels[i] != ignore_index}; }
  __device__ void add(CountedSum<C>& sum, const Loaded& row, std::int64_t) const {
    if (row.counts) sum.sum += cuda::load(row.loss), ++sum.count;
  }
};

template <class T> struct StoreMean {
  T *mean, *share;
  __device__ void operator()(std::int64_t, const CountedSum<Compute<T>>& sum) const {
    const auto count = static_cast<Compute<T>>(sum.count);
    *mean = store<T>(sum.sum / count);
    *share = store<T>(1 / count);
  }
};

}  // namespace

void mean_of_rows(const Context& context, const View& mean, const View& share, const View& losses, const View& labels,
                  std::int64_t ignore_index) {
  dispatch_floating(context, losses.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    reduce_rows<CountedSum<Compute<T>>>(context, 1, losses.numel(),
                                        CountedRows<T>{losses.ptr<T>(), labels.ptr<std::int64_t>(), ignore_index},
                                        StoreMean<T>{mean.ptr<T>(), share.ptr<T>()});
  });
}

void cross_entropy(const Context& context, const View& losses, const View& log_sum_exp, const View& logits, const View& labels,
                   CrossEntropyParams params) {
  const std::int64_t rows = logits.size(0), classes = logits.size(1);
  if (rows == 0) return;
  const std::int64_t* label_data = labels.ptr<std::int64_t>();
  dispatch_floating(context, logits.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using C = Compute<T>;
    const StoreLoss<T> finish{losses.ptr<C>(),
                              log_sum_exp.ptr<C>(),
                              logits.ptr<T>(),
                              label_data,
                              classes,
                              params.ignore_index,
                              static_cast<C>(params.label_smoothing),
                              check_labels(context, classes, params.ignore_index)};
    reduce_rows<RowSums<C>>(context, rows, classes, LogitRows<T>{logits.ptr<T>(), classes}, finish);
  });
}

void cross_entropy_backward(const Context& context, const View& grad_logits, const View& grad_losses, const View& logits,
                            const View& log_sum_exp, const View& labels, CrossEntropyParams params) {
  const std::int64_t classes = logits.size(1);
  dispatch_floating(context, logits.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using C = Compute<T>;
    for_each_index(
        context, logits.numel(),
        LogitGradient<T>{grad_logits.ptr<T>(), grad_losses.ptr<C>(), logits.ptr<T>(), log_sum_exp.ptr<C>(), labels.ptr<std::int64_t>(),
                         classes, params.ignore_index, grad_losses.stride(0), static_cast<C>(params.label_smoothing)});
  });
}

}  // namespace tensorlite::cuda
