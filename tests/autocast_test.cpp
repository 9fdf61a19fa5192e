// Mixed precision: which ops run in which type, gradients in the parameters' type, casts kept for a step, training.
#include "test_tensors.hpp"

#include <thread>

using namespace tensorlite;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Ops run on `device` by f.
template <class F> std::int64_t ops_of(Device device, F&& f) {
  debugging::reset_placement_stats();
  f();
  for (const auto& [where, count] : debugging::placement_stats().ops_per_device)
    if (where == device) return count;
  return 0;
}

}  // namespace

TEST_CASE("autocast: products and convolutions run in the half type") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const DType half = GENERATE(kBFloat16, kFloat16);
  manual_seed(3);
  const Tensor a = randn({5, 7}), b = randn({7, 4}), rows = randn({3, 7}), weight = randn({4, 7}), bias = randn({4});
  const Tensor images = randn({2, 6, 5, 3}), kernel = randn({4, 3, 3, 3}), up = randn({3, 2, 2, 4});
  const auto low = [&](const Tensor& x) { return x.to(half); };
  const Autocast autocast(half);
  const std::pair<Tensor, Tensor> pairs[] = {
      {matmul(a, b), matmul(low(a), low(b))},
      {matmul(low(a), b), matmul(low(a), low(b))},
      {linear(rows, weight, bias, Activation::relu), linear(low(rows), low(weight), low(bias), Activation::relu)},
      {conv2d(images, kernel, bias, {.padding = 1}), conv2d(low(images), low(kernel), low(bias), {.padding = 1})},
      {conv_transpose2d(images, up), conv_transpose2d(low(images), low(up))},
  };
  for (const auto& [got, expected] : pairs) {
    CHECK(got.dtype() == half);
    CHECK_VALUES(got, expected, 0, 0);
  }
  const double precision = half == kFloat16 ? 1e-2 : 6e-2;
  CHECK_VALUES(matmul(a, b), matmul(a.to(kFloat64), b.to(kFloat64)), precision, precision);
}

TEST_CASE("autocast: what wants float32 gets it, the rest follows its inputs") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  manual_seed(4);
  const Tensor x = randn({6, 8}).to(kBFloat16), y = randn({6, 8}), wide = randn({6, 6}).to(kFloat64);
  const Tensor exact = x.to(kFloat32), labels = randint(0, 8, {6});
  Tensor mean_now, var_now;
  const auto plain_batch_norm = batch_norm_train(x, {}, {}, mean_now, var_now);
  const Autocast autocast;
  for (const auto& [got, expected] :
       std::vector<std::pair<Tensor, Tensor>>{{sum(x, {1}), sum(exact, {1})},
                                              {mean(x), mean(exact)},
                                              {prod(x, {0}), prod(exact, {0})},
                                              {var(x, {0}), var(exact, {0})},
                                              {tensorlite::std(x, {0}), tensorlite::std(exact, {0})},
                                              {norm(x), norm(exact)},
                                              {logsumexp(x, {1}), logsumexp(exact, {1})},
                                              {cumsum(x, 1), cumsum(exact, 1)},
                                              {softmax(x, 1), softmax(exact, 1)},
                                              {log_softmax(x, 0), log_softmax(exact, 0)},
                                              {layer_norm(x, {8}), layer_norm(exact, {8})},
                                              {cross_entropy(x, labels), cross_entropy(exact, labels)},
                                              {nll_loss(x, labels), nll_loss(exact, labels)},
                                              {mse_loss(x, y), mse_loss(exact, y)},
                                              {l1_loss(x, x * 0.5), l1_loss(exact, exact * 0.5)},
                                              {smooth_l1_loss(x, y), smooth_l1_loss(exact, y)},
                                              {bce_with_logits(x, sigmoid(y)), bce_with_logits(exact, sigmoid(y))}}) {
    CHECK(got.dtype() == kFloat32);
    CHECK_VALUES(got, expected, 1e-6, 1e-6);
  }
  CHECK(batch_norm_train(x, {}, {}, mean_now, var_now).dtype() == kBFloat16);
  CHECK_VALUES(batch_norm_train(x, {}, {}, mean_now, var_now), plain_batch_norm, 0, 0);
  CHECK(relu(x).dtype() == kBFloat16);
  CHECK((x + y).dtype() == kFloat32);
  CHECK(max(x).dtype() == kBFloat16);
  CHECK(matmul(wide, y).dtype() == kFloat64);
  CHECK_VALUES(matmul(wide, y), matmul(wide, y.to(kFloat64)), 0, 0);
  CHECK(matmul(labels, labels).dtype() == kInt64);
}

TEST_CASE("autocast: scopes nest, end and belong to their thread") {
  const Tensor x = ones({2, 2});
  CHECK_FALSE(autocast_dtype());
  {
    const Autocast outer;
    CHECK(matmul(x, x).dtype() == kBFloat16);
    {
      const Autocast off(std::nullopt);
      CHECK_FALSE(autocast_dtype());
      CHECK(matmul(x, x).dtype() == kFloat32);
      const Autocast inner(kFloat16);
      CHECK(matmul(x, x).dtype() == kFloat16);
    }
    CHECK(autocast_dtype() == kBFloat16);
    DType elsewhere = kInt64;
    std::thread([&] { elsewhere = matmul(x, x).dtype(); }).join();
    CHECK(elsewhere == kFloat32);
    CHECK_THROWS_WITH(matmul(x, ones({3, 2})), ContainsSubstring("[2, 2] and [3, 2]"));
  }
  CHECK(matmul(x, x).dtype() == kFloat32);
  CHECK_THROWS_AS(Autocast(kFloat32), DTypeError);
  CHECK_THROWS_WITH(Autocast(kInt32), ContainsSubstring("int32"));
  CHECK_FALSE(autocast_dtype());
}

TEST_CASE("autocast: gradients come in the parameters' type") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  manual_seed(5);
  const Tensor images = leaf(randn({2, 6, 6, 3})), kernel = leaf(randn({4, 3, 3, 3})), bias = leaf(randn({4})),
               weight = leaf(randn({5, 64}));
  const bool inside = GENERATE(false, true);
  Tensor loss;
  {
    const Autocast autocast;
    const Tensor hidden = conv2d(images, kernel, bias, {.activation = Activation::relu});
    CHECK(hidden.dtype() == kBFloat16);
    loss = mean(square(linear(flatten(hidden, 1), weight)));
    CHECK(loss.dtype() == kFloat32);
    if (inside) loss.backward();
  }
  if (!inside) loss.backward();
  const auto full = [](const Tensor& x) { return leaf(x.detach().to(kFloat64)); };
  const Tensor images64 = full(images), kernel64 = full(kernel), bias64 = full(bias), weight64 = full(weight);
  mean(square(linear(flatten(conv2d(images64, kernel64, bias64, {.activation = Activation::relu}), 1), weight64))).backward();
  for (const auto& [got, expected] : {std::pair(images, images64), {kernel, kernel64}, {bias, bias64}, {weight, weight64}}) {
    REQUIRE(got.grad().dtype() == kFloat32);
    const Tensor error = got.grad().to(kFloat64) - expected.grad();
    CHECK(norm(error).item<double>() < 2e-2 * norm(expected.grad()).item<double>());
  }
}

TEST_CASE("autocast: a parameter is cast once per step") {
  const Device device = GENERATE(from_range(test_devices()));
  const DeviceScope scope(device);
  Tensor weight = leaf(ones({4, 4}));
  const Tensor x = ones({2, 4}).to(kBFloat16);
  const Autocast autocast;
  CHECK(ops_of(device, [&] { linear(x, weight); }) == 2);  // the cast and the product
  CHECK(ops_of(device, [&] { linear(x, weight); }) == 1);
  {
    NoGradGuard guard;
    weight.add_(1);
  }
  CHECK_VALUES(linear(x, weight), full({2, 4}, 8.0), 0, 0);
  sum(linear(x, weight)).backward();
  sum(linear(x, weight)).backward();  // through a new cast: the first one's record is gone
  CHECK_VALUES(weight.grad(), full({4, 4}, 4.0), 0, 0);
  {
    NoGradGuard guard;
    CHECK_FALSE(linear(x, weight).requires_grad());
  }
  CHECK(linear(x, weight).requires_grad());
}

namespace {

struct QuadrantNet : nn::Module {
  nn::Conv2d conv{1, 8, 3, {.padding = 1, .activation = Activation::relu}};
  nn::BatchNorm2d norm{8};
  nn::Linear fc{8 * 16, 4};
  QuadrantNet() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("fc", fc);
  }
  Tensor operator()(const Tensor& x) { return fc(flatten(max_pool2d(norm(conv(x)), 2), 1)); }
};

/// Noise with one quadrant brighter than the others; which one is the label.
std::pair<Tensor, Tensor> quadrants(std::int64_t n) {
  const Tensor labels = randint(0, 4, {n}), row = (labels / 2).to(kInt64), column = labels - row * 2;
  const Tensor at = arange(0, 8) >= 4;
  const Tensor down = equal(at.to(kInt64).reshape({1, 8, 1}), row.reshape({n, 1, 1})),
               right = equal(at.to(kInt64).reshape({1, 1, 8}), column.reshape({n, 1, 1}));
  const Tensor bright = logical_and(expand(down, {n, 8, 8}), expand(right, {n, 8, 8})).to(kFloat32);
  return {(randn({n, 8, 8}) * 0.7 + bright).reshape({n, 8, 8, 1}), labels};
}

double accuracy_after_training(std::optional<DType> half) {
  manual_seed(6);
  QuadrantNet net;
  optim::Adam optimizer(net.parameters(), {.lr = 0.01});
  for (int step = 0; step < 40; ++step) {
    const auto [images, labels] = quadrants(64);
    optimizer.zero_grad();
    Tensor loss;
    {
      std::optional<Autocast> autocast;
      if (half) autocast.emplace(*half);
      const Tensor logits = net(images);
      CHECK(logits.dtype() == half.value_or(kFloat32));
      loss = cross_entropy(logits, labels);
    }
    loss.backward();
    optimizer.step();
  }
  for (const auto& [name, p] : net.named_parameters()) {
    CHECK(p.dtype() == kFloat32);
    CHECK(p.grad().dtype() == kFloat32);
  }
  net.eval();
  NoGradGuard guard;
  const auto [images, labels] = quadrants(512);
  return mean(equal(argmax(net(images), -1), labels).to(kFloat32)).item<double>();
}

}  // namespace

TEST_CASE("autocast: a network learns as well as in float32") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const double full = accuracy_after_training({}), mixed = accuracy_after_training(kBFloat16);
  CHECK(full > 0.95);
  CHECK(mixed > 0.95);
  CHECK(std::abs(full - mixed) < 0.03);
}
