// Batch normalisation of [rows, C] by the statistics of the batch, and its gradient.
#include "kernels.hpp"
#include "norm.hpp"
#include "reduce.hpp"

#include <cmath>

namespace tensorlite::cpu::TL_CPU_NS {
namespace {

/// Rows taken together so that few channels still fill vectors: they follow each other without a gap.
std::int64_t rows_together(std::int64_t channels) { return channels < 64 ? 128 / channels : 1; }

template <class T> std::vector<T> repeated(const std::vector<T>& values, std::int64_t times) {
  std::vector<T> result;
  for (std::int64_t i = 0; i < times; ++i) result.insert(result.end(), values.begin(), values.end());
  return result;
}

/// f(first element, elements) for stretches of at most `width` elements that cover rows [begin, end).
template <class F> void for_each_wide_row(std::int64_t begin, std::int64_t end, std::int64_t channels, std::int64_t width, F&& f) {
  for (std::int64_t at = begin * channels; at < end * channels; at += width) f(at, std::min(width, end * channels - at));
}

void update_running(const View& running, std::int64_t channel, double value, double momentum) {
  if (!running) return;
  double current;
  Source<double>(running).copy(&current, channel, 1, 1);
  current = (1 - momentum) * current + momentum * value;
  Sink<double>(running).store(channel, 1, &current, 1);
}

/// x - center, times scale, plus shift, per channel. The center is the mean rounded to T; shift makes up for the rest.
template <class T> struct Affine { std::vector<T> center, scale, shift; };

template <class T>
Affine<T> take_statistics(const Context& context, const View& mean, const View& inv_std, const View& running_mean, const View& running_var,
                          const View& in, const View& weight, const View& bias, double momentum, double eps) {
  const std::int64_t rows = in.size(0), channels = in.size(1);
  std::vector<double> means(static_cast<std::size_t>(channels)), squares(means);
  column_moments(context, in, means.data(), squares.data());
  Affine<T> affine{std::vector<T>(means.begin(), means.end()), parameter<T>(weight, channels, T(1)), parameter<T>(bias, channels, T(0))};
  std::vector<double> inverse(means);
  for (std::int64_t c = 0; c < channels; ++c) {
    const double variance = squares[c] / static_cast<double>(rows);
    inverse[c] = 1 / std::sqrt(variance + eps);
    const double scale = inverse[c] * static_cast<double>(affine.scale[c]);
    affine.scale[c] = static_cast<T>(scale);
    affine.shift[c] -= static_cast<T>((means[c] - static_cast<double>(affine.center[c])) * scale);
    update_running(running_mean, c, means[c], momentum);
    // One row has no unbiased variance: the biased one, 0, keeps the running value finite.
    update_running(running_var, c, rows > 1 ? squares[c] / static_cast<double>(rows - 1) : variance, momentum);
  }
  Sink<double>(mean).store(0, 1, means.data(), channels);
  Sink<double>(inv_std).store(0, 1, inverse.data(), channels);
  return affine;
}

template <class T> void normalise(const View& out, const View& in, const Affine<T>& affine) {
  const std::int64_t rows = in.size(0), channels = in.size(1), fold = rows_together(channels), width = fold * channels;
  const std::vector<T> centers = repeated(affine.center, fold), scales = repeated(affine.scale, fold),
                       shifts = repeated(affine.shift, fold);
  const T *center = centers.data(), *scale = scales.data(), *shift = shifts.data();
  const Source<T> source(in);
  const Sink<T> sink(out);
  parallel_for(rows, std::max<std::int64_t>(1, 16384 / channels), [&](std::int64_t begin, std::int64_t end) {
    std::vector<T> buffer(source.is_direct() ? 0 : static_cast<std::size_t>(width));
    for_each_wide_row(begin, end, channels, width, [&](std::int64_t at, std::int64_t count) {
      const T* x = source.run(at, count, buffer.data());
      T* y = sink.target(at, buffer.data());
      for (std::int64_t j = 0; j < count; ++j) y[j] = (x[j] - center[j]) * scale[j] + shift[j];
      sink.commit(at, buffer.data(), count);
    });
  });
}

template <class T> struct BackwardOperands {
  Source<T> grad_out, in;
  std::int64_t rows, channels, fold;
  std::vector<T> center;  ///< repeated fold times
  std::int64_t width() const { return fold * channels; }
  std::size_t room() const { return grad_out.is_direct() && in.is_direct() ? 0 : static_cast<std::size_t>(width()); }
};

/// Sums per channel of g and of g * (x - center).
template <class T> void sum_gradients(ColumnSums<T>& sums, const BackwardOperands<T>& o) {
  sums.run(o.fold, [&](std::int64_t begin, std::int64_t end, auto& lanes) {
    std::vector<T> a(o.room()), b(o.room());
    T *first = lanes.first.data(), *second = lanes.second.data();
    const T* center = o.center.data();
    for_each_wide_row(begin, end, o.channels, o.width(), [&](std::int64_t at, std::int64_t count) {
      const T *g = o.grad_out.run(at, count, a.data()), *x = o.in.run(at, count, b.data());
      for (std::int64_t j = 0; j < count; ++j) {
        first[j] += g[j];
        second[j] += g[j] * (x[j] - center[j]);
      }
      lanes.added();
    });
  });
}

/// grad_in = by_gradient * g + by_input * (x - center) + constant.
template <class T>
void combine(const View& grad_in, const BackwardOperands<T>& o, const std::vector<T>& by_gradient, const std::vector<T>& by_input,
             const std::vector<T>& constant) {
  const std::vector<T> p = repeated(by_gradient, o.fold), q = repeated(by_input, o.fold), r = repeated(constant, o.fold);
  const T *pg = p.data(), *px = q.data(), *p1 = r.data(), *center = o.center.data();
  const Sink<T> sink(grad_in);
  parallel_for(o.rows, std::max<std::int64_t>(1, 16384 / o.channels), [&](std::int64_t begin, std::int64_t end) {
    std::vector<T> a(o.room()), b(o.room()), c(sink.is_direct() ? 0 : static_cast<std::size_t>(o.width()));
    for_each_wide_row(begin, end, o.channels, o.width(), [&](std::int64_t at, std::int64_t count) {
      const T *g = o.grad_out.run(at, count, a.data()), *x = o.in.run(at, count, b.data());
      T* to = sink.target(at, c.data());
      for (std::int64_t j = 0; j < count; ++j) to[j] = pg[j] * g[j] + (px[j] * (x[j] - center[j]) + p1[j]);
      sink.commit(at, c.data(), count);
    });
  });
}

template <class T>
void backward_of(const Context& context, const View& grad_in, const View& grad_weight, const View& grad_bias, const View& grad_out,
                 const View& in, const View& weight, const View& mean, const View& inv_std) {
  const std::int64_t rows = in.size(0), channels = in.size(1), fold = rows_together(channels);
  const BackwardOperands<T> operands{
      Source<T>(grad_out), Source<T>(in), rows, channels, fold, repeated(parameter<T>(mean, channels, T(0)), fold)};
  ColumnSums<T> sums(context, rows, channels);
  sum_gradients(sums, operands);
  const std::vector<double> inverse = parameter<double>(inv_std, channels, 1), w = parameter<double>(weight, channels, 1);
  std::vector<double> weight_sums(inverse);
  std::vector<T> by_gradient(inverse.size()), by_input(by_gradient), constant(by_gradient);
  for (std::int64_t c = 0; c < channels; ++c) {
    weight_sums[c] = sums.second()[c] * inverse[c];
    const double scale = w[c] * inverse[c], n = static_cast<double>(rows);
    by_gradient[c] = static_cast<T>(scale);
    by_input[c] = static_cast<T>(-scale * inverse[c] * weight_sums[c] / n);
    constant[c] = static_cast<T>(-scale * sums.first()[c] / n);
  }
  if (grad_weight) Sink<double>(grad_weight).store(0, 1, weight_sums.data(), channels);
  if (grad_bias) Sink<double>(grad_bias).store(0, 1, sums.first(), channels);
  if (grad_in) combine(grad_in, operands, by_gradient, by_input, constant);
}

}  // namespace

void batch_norm(const Context& context, const View& out, const View& mean, const View& inv_std, const View& running_mean,
                const View& running_var, const View& in, const View& weight, const View& bias, double momentum, double eps) {
  if (in.numel() == 0) return fill_zero(mean), fill_zero(inv_std);  // running statistics stay as they are
  auto run = [&]<class T>(T) {
    normalise<T>(out, in, take_statistics<T>(context, mean, inv_std, running_mean, running_var, in, weight, bias, momentum, eps));
  };
  if (in.dtype == DType::float64) run(double{});
  else run(float{});
}

void batch_norm_backward(const Context& context, const View& grad_in, const View& grad_weight, const View& grad_bias, const View& grad_out,
                         const View& in, const View& weight, const View& mean, const View& inv_std) {
  if (in.numel() == 0) return fill_zero(grad_weight), fill_zero(grad_bias);
  if (in.dtype == DType::float64) backward_of<double>(context, grad_in, grad_weight, grad_bias, grad_out, in, weight, mean, inv_std);
  else backward_of<float>(context, grad_in, grad_weight, grad_bias, grad_out, in, weight, mean, inv_std);
}

}  // namespace tensorlite::cpu::TL_CPU_NS
