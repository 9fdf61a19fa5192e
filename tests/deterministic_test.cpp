// Deterministic mode: two trainings give the same bits on every device, op by op and captured. The sizes are those at which a GPU's
// libraries choose algorithms that do not, when they may.
#include "test_tensors.hpp"

using namespace tensorlite;

namespace {

struct Net : nn::Module {
  nn::Conv2d conv1{3, 32, 3, {.padding = Padding::same(), .activation = Activation::relu}};
  nn::Conv2d conv2{32, 32, 3, {.stride = 2, .activation = Activation::relu}};
  nn::BatchNorm2d norm{32};
  nn::MaxPool2d pool{2};
  nn::Dropout dropout{0.3};
  nn::Linear fc{32 * 3 * 3, 10};
  nn::Embedding table{40, 10};
  Net() {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("norm", norm);
    register_module("fc", fc);
    register_module("table", table);
  }
};

std::vector<double> train(bool captured) {
  manual_seed(5);
  Net net;
  optim::Adam optimizer(net.named_parameters());
  const Tensor x = randn({32, 16, 16, 3}), y = randint(0, 10, {32}), words = randint(0, 40, {32});
  const auto body = [&] {
    optimizer.zero_grad();
    const Tensor features = net.dropout(net.pool(net.norm(net.conv2(net.conv1(x)))));
    const Tensor loss = cross_entropy(net.fc(features.flatten(1)) + net.table(words), y);
    loss.backward();
    optimizer.step();
    return loss;
  };
  CapturedStep step = capture(body);
  std::vector<double> numbers;
  for (int i = 0; i < 5; ++i) numbers.push_back(values(captured ? step()[0] : body())[0]);
  for (const auto& [name, t] : net.state_dict())
    for (const double v : values(t)) numbers.push_back(v);
  return numbers;
}

}  // namespace

TEST_CASE("deterministic mode: two runs give the same bits") {
  const Device device = GENERATE(from_range(test_devices()));
  const DeviceScope scope(device);
  config::set_deterministic(true);
  const std::vector<double> first = train(false);
  CHECK(train(false) == first);
  CHECK(train(true) == first);
  config::set_autotune(true);  // has no say here
  CHECK(train(false) == first);
  config::set_autotune(false);
  config::set_deterministic(false);
}
