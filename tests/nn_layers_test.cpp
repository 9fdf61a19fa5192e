// Layers against the functions they stand for; their own state (running statistics, modes) and their errors.
#include "test_tensors.hpp"

using namespace tensorlite;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("layers compute what their functions compute") {
  const Device device = GENERATE(from_range(test_devices()));
  const DeviceScope scope(device);
  manual_seed(1);
  const Tensor images = randn({2, 8, 9, 4}), rows = randn({3, 4});

  const nn::Linear fc{4, 5};
  CHECK_VALUES(fc(rows), linear(rows, fc.weight(), fc.bias()));
  CHECK_VALUES(fc(images), linear(images, fc.weight(), fc.bias()));
  for (const Activation activation : {Activation::relu, Activation::gelu}) {
    const nn::Linear fused{4, 5, {.activation = activation}};
    const Tensor plain = linear(rows, fused.weight(), fused.bias());
    CHECK_VALUES(fused(rows), activation == Activation::relu ? relu(plain) : gelu(plain));
    const nn::Conv2d conv{4, 6, 3, {.activation = activation}};
    const Tensor unfused = conv2d(images, conv.weight(), conv.bias());
    CHECK_VALUES(conv(images), activation == Activation::relu ? relu(unfused) : gelu(unfused), 1e-5, 1e-5);
  }
  const nn::Conv2d strided{4, 6, {3, 2}, {.stride = 2, .padding = Padding::same(), .groups = 2, .bias = false}};
  CHECK(strided.weight().sizes() == Dims({6, 3, 2, 2}));
  CHECK_FALSE(strided.bias().defined());
  CHECK_VALUES(strided(images), conv2d(images, strided.weight(), {.stride = 2, .padding = Padding::same(), .groups = 2}), 1e-5, 1e-5);

  const nn::ConvTranspose2d up{4, 3, 3, {.stride = 2, .padding = 1, .output_padding = 1}};
  CHECK(up.weight().sizes() == Dims({4, 3, 3, 3}));
  CHECK(up(images).sizes() == Dims({2, 16, 18, 3}));

  CHECK_VALUES(nn::MaxPool2d{2}(images), max_pool2d(images, 2));
  CHECK_VALUES((nn::MaxPool2d{3, {.stride = 1, .padding = 1}}(images)), max_pool2d(images, 3, {.stride = 1, .padding = 1}));
  CHECK_VALUES(nn::AvgPool2d{2}(images), avg_pool2d(images, 2));
  CHECK_VALUES(nn::AdaptiveAvgPool2d{1}(images), mean(images, {1, 2}, {.keepdim = true}), 1e-5, 1e-6);
  CHECK(nn::Flatten{}(images).sizes() == Dims({2, 288}));
  CHECK((nn::Flatten{0, 1}(images)).sizes() == Dims({16, 9, 4}));

  CHECK_VALUES(nn::ReLU{}(rows), relu(rows));
  CHECK_VALUES(nn::LeakyReLU{{.slope = 0.2}}(rows), leaky_relu(rows, {.slope = 0.2}));
  CHECK_VALUES(nn::ELU{}(rows), elu(rows));
  CHECK_VALUES(nn::GELU{}(rows), gelu(rows));
  CHECK_VALUES(nn::SiLU{}(rows), silu(rows));
  CHECK_VALUES(nn::Sigmoid{}(rows), sigmoid(rows));
  CHECK_VALUES(nn::Tanh{}(rows), tanh(rows));
  CHECK_VALUES(nn::Softmax{}(rows), softmax(rows, -1));
  CHECK_VALUES(nn::LogSoftmax{0}(rows), log_softmax(rows, 0));
  CHECK_VALUES(nn::Identity{}(rows), rows);

  const nn::Embedding table{10, 3};
  CHECK_VALUES(table(Tensor{{1, 9}, {0, 1}})[0][1], table.weight()[9]);
  const nn::LayerNorm norm{{4}};
  CHECK_VALUES(norm(rows), layer_norm(rows, {4}));
}

TEST_CASE("every parameter of a network of all layers gets a gradient") {
  const Device device = GENERATE(from_range(test_devices()));
  const DeviceScope scope(device);
  nn::Sequential net(nn::Conv2d{2, 4, 3, {.padding = 1, .activation = Activation::relu}}, nn::BatchNorm2d{4}, nn::MaxPool2d{2},
                     nn::ConvTranspose2d{4, 3, 2}, nn::LayerNorm{{3}}, nn::Flatten{}, nn::Linear{75, 6, {.activation = Activation::gelu}},
                     nn::BatchNorm1d{6}, nn::Linear{6, 2});
  square(net(randn({4, 8, 8, 2}))).sum().backward();
  for (const auto& [name, p] : net.named_parameters()) {
    INFO(name);
    REQUIRE(p.grad().defined());
    CHECK(p.grad().sizes() == p.sizes());
    CHECK(p.grad().device() == device);
  }
}

TEST_CASE("layers take dtype, device and NCHW images") {
  const nn::Conv2d conv{2, 3, 3, {.format = DataFormat::NCHW, .dtype = kFloat64, .device = cpu_device()}};
  CHECK(conv.weight().dtype() == kFloat64);
  CHECK(conv.weight().device() == cpu_device());
  CHECK(conv(ones({1, 2, 5, 6}, {.dtype = kFloat64})).sizes() == Dims({1, 3, 3, 4}));
  nn::BatchNorm2d norm{2, {.format = DataFormat::NCHW}};
  CHECK(norm(randn({3, 2, 4, 5})).sizes() == Dims({3, 2, 4, 5}));
  CHECK(nn::Linear{2, 2, {.dtype = kFloat16}}.weight().dtype() == kFloat16);
}

TEST_CASE("batch norm: batch statistics in training, running ones in evaluation") {
  const Device device = GENERATE(from_range(test_devices()));
  const DeviceScope scope(device);
  nn::BatchNorm2d norm{1, {.momentum = 0.5}};
  const Tensor x = Tensor{1.f, 2.f, 3.f, 6.f}.reshape({1, 2, 2, 1});  // mean 3, variance 3.5, unbiased 14/3
  const double s = std::sqrt(3.5 + 1e-5);
  CHECK_VALUES(norm(x), {-2 / s, -1 / s, 0, 3 / s}, 1e-5, 1e-5);
  CHECK_VALUES(norm.running_mean(), {1.5});
  CHECK_VALUES(norm.running_var(), {0.5 + 7.0 / 3}, 1e-5);
  norm.eval();
  const double r = std::sqrt(0.5 + 7.0 / 3 + 1e-5);
  CHECK_VALUES(norm(x), {-0.5 / r, 0.5 / r, 1.5 / r, 4.5 / r}, 1e-5, 1e-5);
  CHECK_VALUES(norm.running_mean(), {1.5});

  nn::BatchNorm1d plain{1, {.affine = false, .track_running = false}};
  CHECK(plain.parameters().empty());
  CHECK(plain.buffers().empty());
  plain.eval();
  CHECK_VALUES(plain(x.reshape({4, 1})), {-2 / s, -1 / s, 0, 3 / s}, 1e-5, 1e-5);
}

TEST_CASE("A25: one value per channel is refused in training and leaves the statistics finite") {
  const Device device = GENERATE(from_range(test_devices()));
  const DeviceScope scope(device);
  nn::BatchNorm1d one{4};
  nn::BatchNorm2d two{4};
  CHECK_THROWS_WITH(one(ones({1, 4})), ContainsSubstring("[1, 4]"));
  CHECK_THROWS_WITH(two(ones({1, 1, 1, 4})), ContainsSubstring("[1, 1, 1, 4]"));
  CHECK(two(randn({1, 2, 2, 4})).sizes() == Dims({1, 2, 2, 4}));
  one.eval();
  CHECK(one(ones({1, 4})).sizes() == Dims({1, 4}));
  for (const Tensor& t : {one.running_var(), two.running_var()})
    for (const double v : values(t)) CHECK(std::isfinite(v));
}

TEST_CASE("A28: dropout of 0 and 1, in training and in evaluation") {
  const Device device = GENERATE(from_range(test_devices()));
  const DeviceScope scope(device);
  nn::Dropout all{1}, none{0}, half{0.5};
  const Tensor x = leaf(Tensor{1.f, 2.f, 3.f});
  const Tensor y = all(x);
  CHECK_VALUES(y, {0, 0, 0});
  y.sum().backward();
  CHECK_VALUES(x.grad(), {0, 0, 0});
  CHECK_VALUES(none(x), {1, 2, 3});
  all.eval();
  CHECK_VALUES(all(x), {1, 2, 3});
  half.eval();
  CHECK_VALUES(half(x), {1, 2, 3});
  half.train();
  const std::vector<double> kept = values(half(ones({10000})));
  CHECK(std::all_of(kept.begin(), kept.end(), [](double v) { return v == 0 || v == 2; }));
  for (const double p : {-0.1, 1.5, std::nan("")}) CHECK_THROWS_AS(nn::Dropout{p}, ValueError);
}

TEST_CASE("layers refuse sizes that make no layer") {
  CHECK_THROWS_AS((nn::Linear{0, 3}), ValueError);
  CHECK_THROWS_AS((nn::Conv2d{4, -1, 3}), ValueError);
  CHECK_THROWS_AS((nn::Conv2d{4, 4, 0}), ValueError);
  CHECK_THROWS_WITH((nn::Conv2d{4, 6, 3, {.groups = 4}}), ContainsSubstring("4 groups"));
  CHECK_THROWS_AS((nn::ConvTranspose2d{4, 6, 3, {.groups = 3}}), ValueError);
  CHECK_THROWS_AS(nn::BatchNorm2d{0}, ValueError);
  CHECK_THROWS_AS(nn::LayerNorm{Dims{}}, ValueError);
  CHECK_THROWS_AS((nn::Embedding{0, 3}), ValueError);
  CHECK_THROWS_WITH(nn::BatchNorm2d{3}(ones({2, 3})), ContainsSubstring("[2, 3]"));
  CHECK_THROWS_WITH(nn::BatchNorm1d{3}(ones({2, 2, 2, 3})), ContainsSubstring("2 or 3 axes"));
  CHECK_THROWS_AS((nn::Linear{4, 2}(ones({2, 5}))), ShapeError);
}
