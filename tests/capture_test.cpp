// Captured steps: the same numbers as op by op, what changes between runs, what is refused and why, memory. On a CPU every call runs op by
// op, and the same must hold.
#include "test_tensors.hpp"

#include <thread>

using namespace tensorlite;
using Catch::Matchers::ContainsSubstring;

namespace {

struct Net : nn::Module {
  nn::Conv2d conv{2, 4, 3, {.activation = Activation::relu}};
  nn::BatchNorm2d norm{4};
  nn::MaxPool2d pool{2};
  nn::Dropout dropout{0.4};
  nn::Linear fc{36, 5};
  Net() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("fc", fc);
  }
  Tensor forward(const Tensor& x) override { return fc(dropout(pool(norm(conv(x))).flatten(1))); }
};

using MakeOptimizer = std::function<std::unique_ptr<optim::Optimizer>(const NamedTensorList&)>;

/// Without it the gradients of convolutions may differ from run to run on a GPU.
struct Deterministic {
  Deterministic() { config::set_deterministic(true); }
  ~Deterministic() { config::set_deterministic(false); }
};

/// Runs `count` steps, some of them followed by one of half the batch, with a change of the learning rate; every number that training left.
std::vector<double> train(const MakeOptimizer& make, bool captured, int count = 8) {
  manual_seed(3);
  Net net;
  const auto optimizer = make(net.named_parameters());
  const auto body = [&](const std::vector<Tensor>& in) {
    optimizer->zero_grad();
    const Tensor loss = cross_entropy(net(in[0]), in[1]);
    loss.backward();
    optimizer->step();
    return loss;
  };
  CapturedStep step = capture(body);
  std::vector<double> numbers;
  const auto keep = [&](const Tensor& t) {
    for (const double v : values(t)) numbers.push_back(v);
  };
  for (int i = 0; i < count; ++i) {
    if (i == 5) optimizer->set_lr(optimizer->lr() * 0.3);
    const Tensor x = randn({6, 8, 8, 2}), y = randint(0, 5, {6});
    keep(captured ? step({x, y})[0] : body({x, y}));
    if (i % 3 == 2) keep(body({x.narrow(0, 0, 3), y.narrow(0, 0, 3)}));  // the last batch of an epoch, say
  }
  CHECK(step.is_captured() == (captured && net.conv.weight().device().is_gpu()));
  for (const auto& [name, t] : net.state_dict()) keep(t);
  for (const auto& [name, t] : optimizer->state_dict()) keep(t);
  for (const Tensor& p : net.parameters()) keep(p.grad());
  numbers.push_back(static_cast<double>(get_rng_state().offset));
  return numbers;
}

/// A step that can be recorded, but for what `extra` does.
std::string refusal(Device device, const std::function<void(const Tensor&)>& extra) {
  const DeviceScope scope(device);
  const Tensor w = full({4}, 2.0, {.requires_grad = true});
  const Tensor old_gradient = full({4}, 7.0);
  w.set_grad(old_gradient);
  const auto offset = get_rng_state().offset;
  bool with_extra = false;
  CapturedStep step = capture([&](const std::vector<Tensor>& in) {
    w.set_grad({});
    const Tensor y = sum(dropout(w * in[0], 0.5));
    y.backward();
    if (with_extra) extra(y.detach());
    return y;
  });
  const Tensor x = ones({4});
  for (int i = 0; i < 2; ++i) step({x});
  w.set_grad(old_gradient);
  with_extra = true;
  std::string text;
  try {
    step({x});
  } catch (const CaptureError& error) { text = error.what(); }
  // All is as before, and ops run.
  CHECK_FALSE(step.is_captured());
  CHECK(w.grad().raw().data == old_gradient.raw().data);
  CHECK(get_rng_state().offset == offset + 2);  // one per step that ran
  CHECK_VALUES(w + x, full({4}, 3.0));
  with_extra = false;
  step({x});
  CHECK(step.is_captured());
  return text;
}

}  // namespace

TEST_CASE("captured steps train exactly as steps run op by op") {
  const Device device = GENERATE(from_range(test_devices()));
  const DeviceScope scope(device);
  const Deterministic deterministic;
  const std::pair<const char*, MakeOptimizer> optimizers[] = {
      {"sgd", [](const auto& p) { return std::make_unique<optim::SGD>(p, optim::SGDOptions{.lr = 0.1, .momentum = 0.9}); }},
      {"adam", [](const auto& p) { return std::make_unique<optim::Adam>(p, optim::AdamOptions{.lr = 0.01, .amsgrad = true}); }},
      {"adamw", [](const auto& p) { return std::make_unique<optim::AdamW>(p); }},
      {"rmsprop", [](const auto& p) { return std::make_unique<optim::RMSprop>(p, optim::RMSpropOptions{.momentum = 0.5}); }},
      {"adadelta", [](const auto& p) { return std::make_unique<optim::Adadelta>(p); }}};
  for (const auto& [name, make] : optimizers) {
    INFO(name);
    const std::vector<double> expected = train(make, false), got = train(make, true);
    CHECK(got == expected);
    CHECK(got.size() > 500);
  }
}

TEST_CASE("random numbers of a captured step are those of the uncaptured one, new in every run") {
  const Device device = GENERATE(from_range(test_devices()));
  const DeviceScope scope(device);
  const auto body = [] {
    Tensor noise = empty({50});
    noise.normal_();
    return std::vector<Tensor>{noise, dropout(ones({50}), 0.5), rand({50}), randint(0, 1000, {50})};
  };
  CapturedStep step = capture(body);
  std::vector<std::vector<double>> got, expected;
  for (const bool captured : {true, false}) {
    manual_seed(9);
    for (int i = 0; i < 6; ++i) {
      if (i == 4) manual_seed(10);
      for (const Tensor& t : captured ? step() : body()) (captured ? got : expected).push_back(values(t));
      (captured ? got : expected).push_back(values(rand({3})));  // the next draw outside follows on
    }
  }
  CHECK(got == expected);
  CHECK(got[0] != got[5]);
}

TEST_CASE("results are overwritten by the next run, inputs come from anywhere") {
  const Device device = GENERATE(from_range(test_devices()));
  CapturedStep step = capture([](const std::vector<Tensor>& in) { return in[0] * 2.0 + in[1].to(kFloat32); }, {.device = device});
  Tensor first, kept;
  for (int i = 0; i < 5; ++i) {
    const Device from = i % 2 ? cpu_device() : device;
    const Tensor x = full({3, 2}, i, {.dtype = kFloat32, .device = from}).t(), y = full({2, 3}, 10 * i, {.device = from});
    const Tensor result = step({x, y})[0];
    CHECK(result.device() == device);
    CHECK_VALUES(result, std::vector<double>(6, 12 * i));
    if (i == 3) first = result, kept = result.clone();
  }
  CHECK_VALUES(kept, std::vector<double>(6, 36));
  if (device.is_gpu()) CHECK_VALUES(first, std::vector<double>(6, 48));
}

TEST_CASE("steps of no inputs and no results, and in-place sums") {
  const Device device = GENERATE(from_range(test_devices()));
  const DeviceScope scope(device);
  Tensor total = zeros({2});
  const Tensor one = ones({2});
  CapturedStep step = capture([&] { total.add_(one); }, {.warmup = 1});
  for (int i = 0; i < 5; ++i) CHECK(step().empty());
  CHECK_VALUES(total, std::vector<double>{5, 5});
  CHECK_THROWS_WITH(step({one}), "capture: the step was captured with 0 inputs, it is given 1");
}

TEST_CASE("inputs of another kind are refused and change nothing") {
  const Device device = GENERATE(from_range(test_devices()));
  const DeviceScope scope(device);
  Tensor total = zeros({2});
  CapturedStep step = capture([&](const std::vector<Tensor>& in) { total.add_(in[0]); });
  for (int i = 0; i < 4; ++i) step({ones({2})});
  CHECK_THROWS_AS(step({ones({3})}), ShapeError);
  CHECK_THROWS_WITH(step({ones({3})}), ContainsSubstring("input 0 was captured with shape [2], it is given [3]; capture another step"));
  CHECK_THROWS_AS(step({ones({2}, {.dtype = kFloat64})}), DTypeError);
  CHECK_THROWS_WITH(step({Tensor()}), "capture: input 0 is an undefined tensor");
  step({ones({2})});
  CHECK_VALUES(total, std::vector<double>{5, 5});
  CHECK_THROWS_WITH(capture([] {}, {.warmup = 0}), ContainsSubstring("must run at least once before it is recorded, warmup is 0"));
}

TEST_CASE("what cannot be recorded is named, and leaves everything as it was") {
  for (const Device device : test_devices()) {
    if (device.is_cpu()) continue;
    const auto check = [&](const std::string& part, const std::function<void(const Tensor&)>& extra) {
      const std::string text = refusal(device, extra);
      INFO(part);
      CHECK_THAT(text, ContainsSubstring(part));
    };
    check(
        "item: cannot be part of a captured step: it waits for the device and brings a result to the host; return the tensor from the step",
        [](const Tensor& y) { y.item<float>(); });
    check("to_vector: cannot be part", [](const Tensor& y) { y.to_vector<float>(); });
    check("to: cannot be part of a captured step: it waits", [](const Tensor& y) { y.cpu(); });
    check("from_span: cannot be part of a captured step: it copies host memory, as it is now, to the device", [](const Tensor&) {
      Tensor{1.f, 2.f};
    });
    check("Ones: cannot be part of a captured step: it runs on CPU:0, the step is captured on GPU:0",
          [](const Tensor&) { ones({2}, {.device = cpu_device()}); });
    check("synchronize: cannot be part", [](const Tensor&) { synchronize(); });
    check("set_rng_state: cannot be part", [](const Tensor&) { manual_seed(1); });
    check("capture: cannot be part", [](const Tensor&) { capture([] {})(); });
    const Tensor w = full({2}, 1.0, {.device = device, .requires_grad = true});
    optim::Adam late({w});
    check("Adam: cannot be part of a captured step: parameter '0' has no state 'exp_avg' yet", [&](const Tensor&) {
      w.set_grad(ones_like(w));
      late.step();
    });
  }
}

TEST_CASE("any other error in a recorded step passes through") {
  const Device device = GENERATE(from_range(test_devices()));
  const DeviceScope scope(device);
  const Tensor a = ones({2}), b = ones({3});
  bool wrong = false;
  CapturedStep step = capture([&] { return wrong ? a + b : a + a; });
  for (int i = 0; i < 2; ++i) step();
  wrong = true;
  CHECK_THROWS_AS(step(), ShapeError);
  wrong = false;
  CHECK_VALUES(step()[0], std::vector<double>{2, 2});
  CHECK_VALUES(step()[0], std::vector<double>{2, 2});
}

TEST_CASE("a bad label is reported once, by a later wait") {
  const Device device = GENERATE(from_range(test_devices()));
  const DeviceScope scope(device);
  const Tensor logits = zeros({3, 5});
  CapturedStep step = capture([&](const std::vector<Tensor>& in) { return cross_entropy(logits, in[0]); });
  const Tensor good = Tensor{0, 4, 2}, bad = Tensor{1, 7, -3};
  for (int i = 0; i < 3; ++i) step({good});
  CHECK_THROWS_WITH((step({bad}), synchronize()), ContainsSubstring("SparseSoftmaxCrossEntropyWithLogits: label 7"));
  CHECK(values(step({good})[0])[0] == Approx(std::log(5.0)));
  synchronize();
  const Tensor table = ones({4, 2});
  CHECK_THROWS_WITH((embedding(table, Tensor{0, 4, 9}), synchronize()),
                    ContainsSubstring("GatherV2: index 4 is out of range for axis 0 of size 4"));
  CHECK_THROWS_AS((one_hot(Tensor{0, -1}, 3), synchronize()), IndexError);
  CHECK_THROWS_AS((nll_loss(logits, Tensor{0, 1, -1}), synchronize()), IndexError);
  CHECK_VALUES(one_hot(Tensor{2, 0}, 3), std::vector<double>{0, 0, 1, 1, 0, 0});
}

TEST_CASE("memory that the graph uses outlives the tensors it was in") {
  for (const Device device : test_devices()) {
    if (device.is_cpu()) continue;
    const DeviceScope scope(device);
    const std::string name = short_name(device);
    const std::int64_t before = config::get_memory_info(name).current;
    {
      Tensor table = arange(0, 10000).to(kFloat32), result;
      CapturedStep step = capture([&] { return relu(table * 2.0) + 1.0; });
      for (int i = 0; i < 4; ++i) result = step()[0];
      REQUIRE(step.is_captured());
      table = Tensor();
      std::vector<Tensor> others;
      for (int i = 0; i < 20; ++i) others.push_back(full({10000}, -5.0));
      step();
      CHECK(values(result)[777] == 1555);
      step = capture([] {});
      CHECK(values(result)[777] == 1555);  // in the graph's memory, which stays for it
      others.clear();
      for (int i = 0; i < 20; ++i) others.push_back(full({10000}, -5.0));
      CHECK(values(result)[777] == 1555);
    }
    CHECK(config::get_memory_info(name).current == before);
  }
}

TEST_CASE("two graphs that use one block keep it until both are dead") {
  for (const Device device : test_devices()) {
    if (device.is_cpu()) continue;
    const DeviceScope scope(device);
    const std::int64_t before = config::get_memory_info(short_name(device)).current;
    {
      auto shared = std::make_unique<Tensor>(full({1000}, 3.0));
      const auto body = [&] { return *shared + 1.0; };
      CapturedStep a = capture(body), b = capture(body);
      for (int i = 0; i < 3; ++i) a(), b();
      shared.reset();
      a = capture([] {});
      const Tensor other = full({1000}, 100.0);
      CHECK(values(b()[0])[999] == 4);
    }
    CHECK(config::get_memory_info(short_name(device)).current == before);
  }
}

TEST_CASE("gradients: made anew by every run, or added up") {
  const Device device = GENERATE(from_range(test_devices()));
  const DeviceScope scope(device);
  const Tensor w = full({3}, 2.0, {.requires_grad = true});
  const auto body = [&](const std::vector<Tensor>& in) { sum(w * in[0]).backward(); };
  {
    CapturedStep step = capture([&](const std::vector<Tensor>& in) { w.set_grad({}), body(in); });
    for (int i = 1; i <= 5; ++i) {
      step({full({3}, i, {.dtype = kFloat32})});
      CHECK_VALUES(w.grad(), std::vector<double>(3, i));
      w.set_grad({});  // what others do with it does not matter
    }
  }
  CapturedStep step = capture(body);
  for (int i = 1; i <= 5; ++i) step({ones({3})});
  CHECK_VALUES(w.grad(), std::vector<double>(3, 5));
  w.grad().zero_();
  step({ones({3})});
  CHECK_VALUES(w.grad(), std::vector<double>(3, 1));
  w.set_grad({});
  if (device.is_gpu())
    CHECK_THROWS_WITH(step({ones({3})}), ContainsSubstring("was dropped or replaced since it was recorded; set it to zero"));
}

TEST_CASE("loading a state goes on with it; moving a parameter is noticed") {
  const Device device = GENERATE(from_range(test_devices()));
  const DeviceScope scope(device);
  manual_seed(1);
  const auto run = [&](bool captured) {
    nn::Linear net{4, 3};
    net.load_state_dict({{"weight", full({3, 4}, 0.5)}, {"bias", full({3}, 0.25)}});
    optim::Adam optimizer(net.named_parameters(), {.lr = 0.1});
    const Tensor x = arange(0, 8).to(kFloat32).reshape({2, 4});
    const auto body = [&] {
      optimizer.zero_grad();
      mean(square(net(x))).backward();
      optimizer.step();
    };
    CapturedStep step = capture(body);
    StateDict weights, state;
    for (int i = 0; i < 8; ++i) {
      if (i == 4)
        for (const auto& [name, t] : net.state_dict()) weights[name] = t.detach().clone();
      if (i == 4)
        for (const auto& [name, t] : optimizer.state_dict()) state[name] = t.clone();
      if (i == 6) net.load_state_dict(weights), optimizer.load_state_dict(state);
      if (captured) step();
      else body();
    }
    std::vector<double> numbers = values(net.weight());
    if (captured && device.is_gpu()) {
      net.to(kFloat64);
      CHECK_THROWS_WITH(step(), ContainsSubstring("parameter 'weight' or its state lies elsewhere than when the step was captured"));
    }
    return numbers;
  };
  CHECK(run(true) == run(false));
}

TEST_CASE("several threads: one records, another works on") {
  const Device device = GENERATE(from_range(test_devices()));
  const Tensor x = full({64}, 2.0, {.device = device});
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::thread other([&] {
    while (!stop) wrong += values(x * 3.0 + 1.0)[63] != 7;
  });
  for (int round = 0; round < 5; ++round) {
    CapturedStep step = capture([&] { return relu(x) * 4.0; }, {.device = device});
    for (int i = 0; i < 10; ++i) CHECK(values(step()[0])[0] == 8);
  }
  stop = true;
  other.join();
  CHECK(wrong == 0);
}
