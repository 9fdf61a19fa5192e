// Layer normalisation of every row of [rows, C], and its gradient.
#include "kernels.hpp"
#include "norm.hpp"

#include <cmath>

namespace tensorlite::cpu::TL_CPU_NS {
namespace {

using namespace reduce_ops;

template <class T, class Op> double row_reduce(const T* x, std::int64_t n, T center) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; i += kReducePiece) sum += reduce_piece<T, Op>(x + i, std::min(kReducePiece, n - i), center);
  return sum;
}

/// Mean and biased variance around a center near the mean, corrected for the distance between the two.
template <class T> struct RowMoments {
  T center;
  double mean, variance;
  RowMoments(const T* x, std::int64_t n) {
    const auto count = static_cast<double>(n);
    center = static_cast<T>(row_reduce<T, Sum>(x, n, T(0)) / count);
    const double off = row_reduce<T, SumOfDeviations>(x, n, center) / count;
    mean = static_cast<double>(center) + off;
    variance = row_reduce<T, SumOfSquaredDeviations>(x, n, center) / count - off * off;
    if (variance < 0) variance = 0;
  }
};

template <class T>
void layer_norm_of(const View& out, const View& mean, const View& inv_std, const View& in, const View& weight, const View& bias,
                   double eps) {
  const std::int64_t rows = in.size(0), n = in.size(1);
  const Source<T> source(in);
  const Sink<T> sink(out);
  const Sink<double> means(mean), inverses(inv_std);
  const std::vector<T> weights = parameter<T>(weight, n, T(1)), biases = parameter<T>(bias, n, T(0));
  const T *w = weights.data(), *b = biases.data();
  parallel_for(rows, std::max<std::int64_t>(1, 8192 / n), [&](std::int64_t begin, std::int64_t end) {
    std::vector<T> buffer(source.is_direct() ? 0 : static_cast<std::size_t>(n));
    for (std::int64_t row = begin; row < end; ++row) {
      const T* x = source.run(row * n, n, buffer.data());
      const RowMoments<T> moments(x, n);
      const double inverse = 1 / std::sqrt(moments.variance + eps);
      const T center = moments.center, scale = static_cast<T>(inverse);
      const T shift = static_cast<T>((static_cast<double>(center) - moments.mean) * inverse);
      T* y = sink.target(row * n, buffer.data());
      for (std::int64_t i = 0; i < n; ++i) y[i] = ((x[i] - center) * scale + shift) * w[i] + b[i];
      sink.commit(row * n, buffer.data(), n);
      means.store(row, 1, &moments.mean, 1);
      inverses.store(row, 1, &inverse, 1);
    }
  });
}

/// One row's normalised values and weighted gradient.
template <class T> struct RowScratch {
  std::vector<T> normal, weighted, product;
  explicit RowScratch(std::int64_t n) : normal(static_cast<std::size_t>(n)), weighted(normal), product(normal) {}
};

/// inverse * (g * w - mean(g * w) - normal * mean(g * w * normal)); adds g * normal and g to the lanes.
/// __restrict: too many arrays for the compiler to tell apart at run time, it would not use vectors.
template <class T>
void backward_row(T* out, const T* __restrict g, const T* __restrict x, const T* __restrict w, std::int64_t n, T mean, T inverse,
                  RowScratch<T>& scratch, T* __restrict weight_lanes, T* __restrict bias_lanes) {
  T* __restrict normal = scratch.normal.data(), * __restrict weighted = scratch.weighted.data(), * __restrict product = scratch.product.data();
  for (std::int64_t i = 0; i < n; ++i) {
    normal[i] = (x[i] - mean) * inverse;
    weighted[i] = g[i] * w[i];
    product[i] = weighted[i] * normal[i];
    weight_lanes[i] += g[i] * normal[i];
    bias_lanes[i] += g[i];
  }
  if (!out) return;
  const auto count = static_cast<double>(n);
  const T average = static_cast<T>(row_reduce<T, Sum>(weighted, n, T(0)) / count);
  const T slope = static_cast<T>(row_reduce<T, Sum>(product, n, T(0)) / count);
  for (std::int64_t i = 0; i < n; ++i) out[i] = inverse * (weighted[i] - average - normal[i] * slope);
}

template <class T>
void backward_of(const Context& context, const View& grad_in, const View& grad_weight, const View& grad_bias, const View& grad_out,
                 const View& in, const View& weight, const View& mean, const View& inv_std) {
  const std::int64_t rows = in.size(0), n = in.size(1);
  const Source<T> gradients(grad_out), inputs(in);
  const Sink<T> sink(grad_in ? grad_in : grad_out);
  const std::vector<T> weights = parameter<T>(weight, n, T(1)), means = parameter<T>(mean, rows, T(0)),
                       inverses = parameter<T>(inv_std, rows, T(1));
  ColumnSums<T> sums(context, rows, n);
  sums.run(1, [&](std::int64_t begin, std::int64_t end, auto& lanes) {
    RowScratch<T> scratch(n);
    std::vector<T> a(static_cast<std::size_t>(n)), b(a), c(a);
    for (std::int64_t row = begin; row < end; ++row) {
      T* out = grad_in ? sink.target(row * n, c.data()) : nullptr;
      backward_row(out, gradients.run(row * n, n, a.data()), inputs.run(row * n, n, b.data()), weights.data(), n, means[row], inverses[row],
                   scratch, lanes.first.data(), lanes.second.data());
      if (grad_in) sink.commit(row * n, c.data(), n);
      lanes.added();
    }
  });
  if (grad_weight) Sink<double>(grad_weight).store(0, 1, sums.first(), n);
  if (grad_bias) Sink<double>(grad_bias).store(0, 1, sums.second(), n);
}

}  // namespace

void layer_norm(const Context&, const View& out, const View& mean, const View& inv_std, const View& in, const View& weight,
                const View& bias, double eps) {
  if (in.numel() == 0) return fill_zero(mean), fill_zero(inv_std);
  if (in.dtype == DType::float64) layer_norm_of<double>(out, mean, inv_std, in, weight, bias, eps);
  else layer_norm_of<float>(out, mean, inv_std, in, weight, bias, eps);
}

void layer_norm_backward(const Context& context, const View& grad_in, const View& grad_weight, const View& grad_bias, const View& grad_out,
                         const View& in, const View& weight, const View& mean, const View& inv_std) {
  if (in.numel() == 0) return fill_zero(grad_weight), fill_zero(grad_bias);
  if (in.dtype == DType::float64) backward_of<double>(context, grad_in, grad_weight, grad_bias, grad_out, in, weight, mean, inv_std);
  else backward_of<float>(context, grad_in, grad_weight, grad_bias, grad_out, in, weight, mean, inv_std);
}

}  // namespace tensorlite::cpu::TL_CPU_NS
