// Out-of-line L4: initialisers.
#include <tensorlite/nn/init.hpp>

#include <tensorlite/ops/random.hpp>

#include <cmath>
#include <numeric>

namespace tensorlite::nn::init {

Fans fans(const Dims& sizes) {
  TL_CHECK(sizes.size() >= 2, ShapeError, "init", "the fans of shape ", sizes, " are not defined: it needs at least 2 axes");
  std::int64_t field = 1;
  for (int i = 1; i + 1 < sizes.size(); ++i) field *= sizes[i];
  return {sizes.back() * field, sizes[0] * field};
}

double gain(Nonlinearity nonlinearity, double slope) {
  switch (nonlinearity) {
    case Nonlinearity::tanh: return 5.0 / 3;
    case Nonlinearity::relu: return std::sqrt(2.0);
    case Nonlinearity::leaky_relu: return std::sqrt(2 / (1 + slope * slope));
    case Nonlinearity::selu: return 0.75;
    default: return 1;
  }
}

Tensor constant_(Tensor t, Scalar value) {
  NoGradGuard guard;
  t.fill_(value);
  return t;
}
Tensor uniform_(Tensor t, double low, double high) {
  NoGradGuard guard;
  t.uniform_(low, high);
  return t;
}
Tensor normal_(Tensor t, double mean, double deviation) {
  NoGradGuard guard;
  t.normal_(mean, deviation);
  return t;
}

namespace {

/// A fan to divide by; a tensor without elements has none and needs none.
double checked_fan(const char* op, const Tensor& t, std::int64_t fan) {
  TL_CHECK(fan > 0 || t.numel() == 0, ValueError, op, "shape ", t.sizes(), " has a fan of 0");
  return static_cast<double>(fan > 0 ? fan : 1);
}

double kaiming_deviation(const char* op, const Tensor& t, const KaimingOptions& options) {
  const Fans f = fans(t.sizes());
  return gain(options.nonlinearity, options.a) / std::sqrt(checked_fan(op, t, options.mode == FanMode::fan_in ? f.in : f.out));
}
double xavier_deviation(const char* op, const Tensor& t, double gain) {
  const Fans f = fans(t.sizes());
  return gain * std::sqrt(2 / checked_fan(op, t, f.in + f.out));
}
/// Half the width of the uniform distribution of this deviation.
double half_width(double deviation) { return std::sqrt(3.0) * deviation; }

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

/// The x of normal_cdf(x) = p within [low, high], by bisection: exact to the last digit, and fast enough for first weights.
double normal_quantile(double p, double low, double high) {
  for (int i = 0; i < 100; ++i) {
    const double middle = low + (high - low) / 2;
    if (middle <= low || middle >= high) break;
    (normal_cdf(middle) < p ? low : high) = middle;
  }
  return low;
}

/// Makes the columns of a row-major matrix orthonormal, each by removing what it shares with those before (twice: once leaves rounding
/// errors behind). It is the Q of the QR factorisation whose R has a positive diagonal.
void orthonormalize_columns(std::vector<double>& m, std::size_t rows, std::size_t columns) {
  const auto dot = [&](std::size_t a, std::size_t b) {
    double sum = 0;
    for (std::size_t r = 0; r < rows; ++r) sum += m[r * columns + a] * m[r * columns + b];
    return sum;
  };
  for (std::size_t c = 0; c < columns; ++c) {
    for (int pass = 0; pass < 2; ++pass)
      for (std::size_t before = 0; before < c; ++before) {
        const double share = dot(before, c);
        for (std::size_t r = 0; r < rows; ++r) m[r * columns + c] -= share * m[r * columns + before];
      }
    const double length = std::sqrt(dot(c, c));
    for (std::size_t r = 0; r < rows; ++r) m[r * columns + c] /= length;
  }
}

/// Host numbers into a tensor of any dtype and device.
void store(Tensor& t, const std::vector<double>& values) {
  NoGradGuard guard;
  t.copy_(from_vector(values, t.sizes(), {.device = cpu_device()}));
}

}  // namespace

Tensor truncated_normal_(Tensor t, const TruncatedOptions& options) {
  TL_CHECK(options.low < options.high && options.deviation > 0, ValueError, "truncated_normal_", "low ", options.low, ", high ",
           options.high, " and deviation ", options.deviation, ": low must be below high, the deviation positive");
  const double low = (options.low - options.mean) / options.deviation, high = (options.high - options.mean) / options.deviation;
  std::vector<double> values = rand(t.sizes(), {.dtype = kFloat64, .device = cpu_device()}).to_vector<double>();
  const double first = normal_cdf(low), last = normal_cdf(high);
  for (double& v : values) v = options.mean + options.deviation * normal_quantile(first + v * (last - first), low, high);
  store(t, values);
  return t;
}

Tensor kaiming_uniform_(Tensor t, const KaimingOptions& options) {
  const double bound = half_width(kaiming_deviation("kaiming_uniform_", t, options));
  return uniform_(std::move(t), -bound, bound);
}
Tensor kaiming_normal_(Tensor t, const KaimingOptions& options) {
  const double deviation = kaiming_deviation("kaiming_normal_", t, options);
  return normal_(std::move(t), 0, deviation);
}
Tensor xavier_uniform_(Tensor t, double gain) {
  const double bound = half_width(xavier_deviation("xavier_uniform_", t, gain));
  return uniform_(std::move(t), -bound, bound);
}
Tensor xavier_normal_(Tensor t, double gain) {
  const double deviation = xavier_deviation("xavier_normal_", t, gain);
  return normal_(std::move(t), 0, deviation);
}

Tensor orthogonal_(Tensor t, double gain) {
  TL_CHECK(t.dim() >= 2, ShapeError, "orthogonal_", "shape ", t.sizes(), " has no rows and columns: it needs at least 2 axes");
  if (t.numel() == 0) return t;
  const auto rows = static_cast<std::size_t>(t.size(0)), columns = static_cast<std::size_t>(t.numel()) / rows;
  const bool wide = rows < columns;
  const std::size_t longer = wide ? columns : rows, shorter = wide ? rows : columns;
  std::vector<double> drawn = randn({t.numel()}, {.dtype = kFloat64, .device = cpu_device()}).to_vector<double>();
  orthonormalize_columns(drawn, longer, shorter);
  std::vector<double> values(drawn.size());
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c) values[r * columns + c] = gain * (wide ? drawn[c * shorter + r] : drawn[r * shorter + c]);
  store(t, values);
  return t;
}

void layer_(Init kind, const Tensor& weight, const Tensor& bias) {
  switch (kind) {
    case Init::pytorch: {
      // kaiming_uniform_ with a = sqrt(5) comes to the same bound as the bias has.
      const double bound = 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(fans(weight.sizes()).in, 1)));
      uniform_(weight, -bound, bound);
      if (bias.defined()) uniform_(bias, -bound, bound);
      return;
    }
    case Init::keras: xavier_uniform_(weight); break;
    case Init::he: kaiming_uniform_(weight, {.nonlinearity = Nonlinearity::relu}); break;
  }
  if (bias.defined()) zeros_(bias);
}

}  // namespace tensorlite::nn::init
