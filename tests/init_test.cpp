// Initialisers against the bounds and moments of their distributions.
#include "test_tensors.hpp"

#include <numeric>

using namespace tensorlite;
namespace init = nn::init;
using Catch::Matchers::ContainsSubstring;

namespace {

struct Moments {
  double low = 0, high = 0, mean = 0, deviation = 0;
};
Moments moments(const Tensor& t) {
  const std::vector<double> v = values(t);
  const auto n = static_cast<double>(v.size());
  Moments m{*std::min_element(v.begin(), v.end()), *std::max_element(v.begin(), v.end()), std::accumulate(v.begin(), v.end(), 0.0) / n, 0};
  for (const double x : v) m.deviation += (x - m.mean) * (x - m.mean) / n;
  m.deviation = std::sqrt(m.deviation);
  return m;
}

/// Uniform in +-bound: never outside, nearly reaching it, with the moments of that distribution within five standard errors.
void check_uniform(const Tensor& t, double bound) {
  const Moments m = moments(t);
  const double n = static_cast<double>(t.numel()), deviation = bound / std::sqrt(3.0);
  CHECK(m.low >= -bound * (1 + 1e-6));
  CHECK(m.high <= bound * (1 + 1e-6));
  CHECK(m.low < -bound * (1 - 20 / n));
  CHECK(m.high > bound * (1 - 20 / n));
  CHECK(std::abs(m.mean) < 5 * deviation / std::sqrt(n));
  CHECK(std::abs(m.deviation - deviation) < 5 * deviation * std::sqrt(0.2 / n));
}

void check_normal(const Tensor& t, double mean, double deviation) {
  const Moments m = moments(t);
  const double n = static_cast<double>(t.numel());
  CHECK(std::abs(m.mean - mean) < 5 * deviation / std::sqrt(n));
  CHECK(std::abs(m.deviation - deviation) < 5 * deviation / std::sqrt(2 * n));
  CHECK(m.high - mean > 3 * deviation);
  CHECK(m.low - mean < -3 * deviation);
}

}  // namespace

TEST_CASE("fans of linear and OHWI weights") {
  CHECK(init::fans({7, 5}).in == 5);
  CHECK(init::fans({7, 5}).out == 7);
  CHECK(init::fans({32, 3, 5, 4}).in == 60);    // 3 * 5 * 4
  CHECK(init::fans({32, 3, 5, 4}).out == 480);  // 3 * 5 * 32
  CHECK_THROWS_WITH(init::fans({7}), ContainsSubstring("[7]"));
  CHECK_THROWS_AS(init::kaiming_normal_(zeros({7})), ShapeError);
  CHECK_THROWS_AS(init::xavier_uniform_(scalar(1.0)), ShapeError);
}

TEST_CASE("gains are those of the literature") {
  CHECK(init::gain(nn::Nonlinearity::linear) == 1);
  CHECK(init::gain(nn::Nonlinearity::sigmoid) == 1);
  CHECK(init::gain(nn::Nonlinearity::tanh) == Approx(5.0 / 3));
  CHECK(init::gain(nn::Nonlinearity::relu) == Approx(std::sqrt(2.0)));
  CHECK(init::gain(nn::Nonlinearity::leaky_relu, 0.2) == Approx(std::sqrt(2 / 1.04)));
  CHECK(init::gain(nn::Nonlinearity::selu) == 0.75);
}

TEST_CASE("distributions have their bounds and moments") {
  const Device device = GENERATE(from_range(test_devices()));
  const DeviceScope scope(device);
  manual_seed(7);
  const Tensor t = empty({64, 3, 3, 32}, {.requires_grad = true});  // fan_in 288, fan_out 576, 18432 numbers
  check_uniform(init::uniform_(t, -0.5, 0.5), 0.5);
  check_normal(init::normal_(t, 2, 0.5), 2, 0.5);
  check_uniform(init::kaiming_uniform_(t), std::sqrt(6.0 / 288));
  check_uniform(init::kaiming_uniform_(t, {.a = std::sqrt(5.0)}), 1 / std::sqrt(288.0));
  check_uniform(init::kaiming_uniform_(t, {.mode = nn::FanMode::fan_out, .nonlinearity = nn::Nonlinearity::linear}), std::sqrt(3.0 / 576));
  check_normal(init::kaiming_normal_(t, {.nonlinearity = nn::Nonlinearity::relu}), 0, std::sqrt(2.0 / 288));
  check_uniform(init::xavier_uniform_(t, 2), 2 * std::sqrt(6.0 / 864));
  check_normal(init::xavier_normal_(t), 0, std::sqrt(2.0 / 864));
  CHECK(t.requires_grad());
  CHECK(t.device() == device);
  CHECK_VALUES(init::constant_(empty({3}), 2.5), {2.5, 2.5, 2.5});
  CHECK_VALUES(init::zeros_(ones({2})), {0, 0});
  CHECK_VALUES(init::ones_(zeros({2})), {1, 1});
}

TEST_CASE("a truncated normal stays inside, with the moments of the cut distribution") {
  manual_seed(3);
  const Tensor t = init::truncated_normal_(empty({20000}), {.mean = 1, .deviation = 2, .low = -3, .high = 5});  // +-2 deviations
  const Moments m = moments(t);
  CHECK(m.low >= -3);
  CHECK(m.high <= 5);
  CHECK(m.low < -2.9);
  CHECK(m.high > 4.9);
  CHECK(std::abs(m.mean - 1) < 5 * 1.76 / std::sqrt(20000.0));
  CHECK(m.deviation == Approx(2 * 0.8796).epsilon(0.02));  // sqrt(1 - 2 * 2 * pdf(2) / (cdf(2) - cdf(-2)))
  CHECK_THROWS_AS(init::truncated_normal_(empty({2}), {.low = 1, .high = 1}), ValueError);
  CHECK_THROWS_AS(init::truncated_normal_(empty({2}), {.deviation = 0}), ValueError);
}

TEST_CASE("orthogonal weights are orthonormal in rows or columns") {
  const Device device = GENERATE(from_range(test_devices()));
  const DeviceScope scope(device);
  for (const Dims& sizes : {Dims{6, 6}, Dims{8, 3}, Dims{3, 8}, Dims{4, 3, 3, 2}, Dims{40, 2, 2, 3}}) {
    const Tensor w = init::orthogonal_(empty(sizes, {.dtype = kFloat64}), 3).reshape({sizes[0], -1});
    const Tensor gram = w.size(0) <= w.size(1) ? matmul(w, w.t()) : matmul(w.t(), w);
    CHECK_VALUES(gram, eye(gram.size(0), {}, {.dtype = kFloat64}) * 9, 1e-12, 1e-12);
  }
  CHECK_THROWS_AS(init::orthogonal_(empty({4})), ShapeError);
  CHECK(init::orthogonal_(empty({0, 4})).numel() == 0);
  // A determinant of both signs: the distribution is over all orthogonal matrices.
  int flips = 0;
  for (int i = 0; i < 20; ++i) {
    const std::vector<double> v = values(init::orthogonal_(empty({2, 2}, {.dtype = kFloat64})));
    flips += v[0] * v[3] - v[1] * v[2] < 0;
  }
  CHECK((flips > 0 && flips < 20));
}

TEST_CASE("the same seed gives the same weights on every device") {
  const Device device = GENERATE(from_range(test_devices()));
  const auto drawn = [](Device where) {
    manual_seed(11);
    const nn::Conv2d conv{3, 8, 3, {.device = where}};
    const nn::Linear fc{20, 5, {.init = nn::Init::keras, .device = where}};
    const Tensor q = init::orthogonal_(empty({5, 5}, {.device = where}));
    return std::vector{values(conv.weight()), values(conv.bias()), values(fc.weight()), values(q)};
  };
  CHECK(drawn(device) == drawn(cpu_device()));
}

TEST_CASE("default weights are PyTorch's, Keras's and he_uniform by option") {
  manual_seed(5);
  const nn::Conv2d conv{32, 64, 3};  // fan_in 288
  check_uniform(conv.weight(), 1 / std::sqrt(288.0));
  const Moments bias = moments(conv.bias());
  CHECK((bias.low >= -1 / std::sqrt(288.0) && bias.high <= 1 / std::sqrt(288.0) && bias.deviation > 0.3 / std::sqrt(288.0)));
  const nn::Conv2d grouped{32, 64, 3, {.groups = 4}};  // fan_in 72
  check_uniform(grouped.weight(), 1 / std::sqrt(72.0));
  const nn::Linear linear{100, 80};
  check_uniform(linear.weight(), 0.1);

  const nn::Linear keras{100, 80, {.init = nn::Init::keras}};
  check_uniform(keras.weight(), std::sqrt(6.0 / 180));
  CHECK_VALUES(keras.bias(), zeros({80}));
  const nn::Conv2d keras_conv{32, 64, 3, {.init = nn::Init::keras}};
  check_uniform(keras_conv.weight(), std::sqrt(6.0 / (288 + 576)));
  const nn::Conv2d he{32, 64, 3, {.init = nn::Init::he}};
  check_uniform(he.weight(), std::sqrt(6.0 / 288));
  CHECK_VALUES(he.bias(), zeros({64}));
  check_normal(nn::Embedding{200, 50}.weight(), 0, 1);
}
