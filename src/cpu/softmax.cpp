// Softmax, log-softmax and their gradients over the middle axis.
#include "softmax.hpp"

#include "kernels.hpp"

namespace tensorlite::cpu::TL_CPU_NS {
namespace {

template <class T> void softmax_row(T* out, const T* in, std::int64_t n, bool log) {
  const T largest = row_max(in, n);
  if (log) {
    const Vec<T> center(largest), log_sum(static_cast<T>(std::log(row_exp_sum(in, n, largest))));
    return map_row(out, in, n, [&](Vec<T> x) { return x - center - log_sum; });
  }
  const Vec<T> scale(static_cast<T>(1 / row_exponentials(out, in, n, largest)));
  map_row(out, out, n, [&](Vec<T> e) { return e * scale; });
}

template <class T> void softmax_columns(T* out, const T* in, std::int64_t n, std::int64_t count, bool log) {
  T largest[kLines], sums[kLines];
  columns_max(in, n, count, largest);
  columns_exponentials(out, in, n, count, largest, sums);
  for_each_lane<T>(count, [&](std::int64_t j) {
    const Vec<T> sum = Vec<T>::load(sums + j);
    (log ? tensorlite::cpu::TL_CPU_NS::log(sum) : Vec<T>(1) / sum).store(sums + j);
  });
  if (log) map_columns(out, in, n, count, [&](Vec<T> x, std::int64_t j) { return x - Vec<T>::load(largest + j) - Vec<T>::load(sums + j); });
  else map_columns(out, out, n, count, [&](Vec<T> e, std::int64_t j) { return e * Vec<T>::load(sums + j); });
}

template <class T> void softmax_of(const View& out, const View& in, bool log) {
  const LineShape shape{in.size(0), in.size(1), in.size(2)};
  const Source<T> source(in);
  const Sink<T> sink(out);
  const std::int64_t n = shape.n, room = shape.by_columns() ? n * kLines : source.is_direct() && sink.is_direct() ? 0 : n;
  for_each_line_group(shape, [&] {
    return
        [&, a = std::vector<T>(room), b = std::vector<T>(shape.by_columns() ? room : 0)](std::int64_t first, std::int64_t count) mutable {
          if (shape.by_columns()) {
            load_columns(source, shape, first, count, a.data());
            softmax_columns(b.data(), a.data(), n, count, log);
            return store_columns(sink, shape, first, count, b.data());
          }
          softmax_row(sink.target(first * n, a.data()), source.run(first * n, n, a.data()), n, log);
          sink.commit(first * n, a.data(), n);
        };
  });
}

/// softmax: y * (g - sum(g * y)); log-softmax, y = log p: g - exp(y) * sum(g). out may be g.
template <class T> void backward_row(T* out, const T* g, const T* y, std::int64_t n, bool log) {
  double sum = 0;
  if (log) {
    for (std::int64_t i = 0; i < n; i += kReducePiece) sum += reduce_piece<T, reduce_ops::Sum>(g + i, std::min(kReducePiece, n - i), T(0));
  } else {
    T products[256];
    for (std::int64_t i = 0; i < n; i += 256) {
      const std::int64_t piece = std::min<std::int64_t>(256, n - i);
      for (std::int64_t k = 0; k < piece; ++k) products[k] = g[i + k] * y[i + k];
      sum += reduce_piece<T, reduce_ops::Sum>(products, piece, T(0));
    }
  }
  const T total = static_cast<T>(sum);
  if (!log) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = y[i] * (g[i] - total);
    return;
  }
  T probabilities[256];
  for (std::int64_t i = 0; i < n; i += 256) {
    const std::int64_t piece = std::min<std::int64_t>(256, n - i);
    map_row(probabilities, y + i, piece, [](Vec<T> x) { return exp(x); });
    for (std::int64_t k = 0; k < piece; ++k) out[i + k] = g[i + k] - probabilities[k] * total;
  }
}

/// out may be g.
template <class T> void backward_columns(T* out, const T* g, const T* y, std::int64_t n, std::int64_t count, bool log) {
  T sums[kLines];
  columns_sum(n, count, sums, [&](std::int64_t at, std::int64_t) {
    const Vec<T> gradient = Vec<T>::load(g + at);
    return log ? gradient : gradient * Vec<T>::load(y + at);
  });
  for_each_lane<T>(count, [&](std::int64_t j) {
    const Vec<T> sum = Vec<T>::load(sums + j);
    for (std::int64_t at = j; at < n * kLines; at += kLines) {
      const Vec<T> gradient = Vec<T>::load(g + at), result = Vec<T>::load(y + at);
      (log ? gradient - exp(result) * sum : result * (gradient - sum)).store(out + at);
    }
  });
}

template <class T> void softmax_backward_of(const View& grad_in, const View& grad_out, const View& result, bool log) {
  const LineShape shape{result.size(0), result.size(1), result.size(2)};
  const Source<T> gradients(grad_out), results(result);
  const Sink<T> sink(grad_in);
  const std::int64_t n = shape.n, room = shape.by_columns() ? n * kLines : gradients.is_direct() && results.is_direct() ? 0 : n;
  for_each_line_group(shape, [&] {
    return [&, a = std::vector<T>(room), b = std::vector<T>(room)](std::int64_t first, std::int64_t count) mutable {
      if (shape.by_columns()) {
        load_columns(gradients, shape, first, count, a.data());
        load_columns(results, shape, first, count, b.data());
        backward_columns(a.data(), a.data(), b.data(), n, count, log);
        return store_columns(sink, shape, first, count, a.data());
      }
      const std::int64_t at = first * n;
      backward_row(sink.target(at, a.data()), gradients.run(at, n, a.data()), results.run(at, n, b.data()), n, log);
      sink.commit(at, a.data(), n);
    };
  });
}

}  // namespace

void softmax(const Context&, const View& out, const View& in, bool log) {
  if (in.numel() == 0) return;
  if (in.dtype == DType::float64) softmax_of<double>(out, in, log);
  else softmax_of<float>(out, in, log);
}

void softmax_backward(const Context&, const View& grad_in, const View& grad_out, const View& result, bool log) {
  if (result.numel() == 0) return;
  if (result.dtype == DType::float64) softmax_backward_of<double>(grad_in, grad_out, result, log);
  else softmax_backward_of<float>(grad_in, grad_out, result, log);
}

}  // namespace tensorlite::cpu::TL_CPU_NS
