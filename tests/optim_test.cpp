// Optimizers against the published rules written out in double, for every option; state, groups, errors. Schedules are in
// scheduler_test.cpp.
#include "test_tensors.hpp"

#include <array>

using namespace tensorlite;
using Catch::Matchers::ContainsSubstring;
using optim::Convention;

namespace {

/// One number under an optimizer: update(weight, gradient, t) with t = 1 for the first step.
using Rule = std::function<void(double& w, double g, int t)>;

Rule sgd_rule(optim::SGDOptions o) {
  return [o, v = 0.0](double& w, double g, int t) mutable {
    if (o.maximize) g = -g;
    if (o.convention == Convention::keras) {
      w *= 1 - o.lr * o.weight_decay;
      v = o.momentum * v - o.lr * g;
      w += o.nesterov ? o.momentum * v - o.lr * g : v;
      return;
    }
    g += o.weight_decay * w;
    v = t == 1 ? g : o.momentum * v + (1 - o.dampening) * g;
    w -= o.lr * (o.momentum == 0 ? g : o.nesterov ? g + o.momentum * v : v);
  };
}

template <class Options> Rule adam_rule(Options o, double eps) {
  constexpr bool decoupled = std::is_same_v<Options, optim::AdamWOptions>;
  return [o, eps, m = 0.0, v = 0.0, top = 0.0](double& w, double g, int t) mutable {
    const bool keras = o.convention == Convention::keras;
    if (o.maximize) g = -g;
    if (decoupled || keras) w -= o.lr * o.weight_decay * w;
    else g += o.weight_decay * w;
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
    top = std::max(top, v);
    const double square = o.amsgrad ? top : v, c1 = 1 - std::pow(o.beta1, t), c2 = 1 - std::pow(o.beta2, t);
    if (keras) w -= o.lr * std::sqrt(c2) / c1 * m / (std::sqrt(square) + eps);
    else w -= o.lr * (m / c1) / (std::sqrt(square / c2) + eps);
  };
}

Rule rmsprop_rule(optim::RMSpropOptions o, double lr, double alpha, double eps) {
  return [=, square = 0.0, mean = 0.0, v = 0.0](double& w, double g, int) mutable {
    const bool keras = o.convention == Convention::keras;
    if (o.maximize) g = -g;
    if (keras) w -= lr * o.weight_decay * w;
    else g += o.weight_decay * w;
    square = alpha * square + (1 - alpha) * g * g;
    if (o.centered) mean = alpha * mean + (1 - alpha) * g;
    const double step = g / (std::sqrt(square - mean * mean) + eps);
    if (keras) v = o.momentum * v + lr * step;
    else v = o.momentum * v + step;
    w -= keras ? v : lr * v;
  };
}

Rule adadelta_rule(optim::AdadeltaOptions o, double rho, double eps) {
  return [=, square = 0.0, moved = 0.0](double& w, double g, int) mutable {
    if (o.maximize) g = -g;
    if (o.convention == Convention::keras) w -= o.lr * o.weight_decay * w;
    else g += o.weight_decay * w;
    square = rho * square + (1 - rho) * g * g;
    const double step = std::sqrt((moved + eps) / (square + eps)) * g;
    moved = rho * moved + (1 - rho) * step * step;
    w -= o.lr * step;
  };
}

/// The gradient at step t of a parameter's element i: changes sign and size, and depends on the weight.
double gradient_at(int t, std::size_t i, double w) {
  return std::cos(0.9 * t + static_cast<double>(i)) * (0.1 + 0.3 * static_cast<double>(i % 3)) + 0.2 * w;
}

using Make = std::function<std::unique_ptr<optim::Optimizer>(const NamedTensorList&)>;

struct Case {
  std::string name;
  Make make;
  std::function<Rule()> rule;
};

template <class Optimizer, class Options, class MakeRule> Case make_case(std::string name, Options options, MakeRule rule) {
  return {std::move(name), [options](const NamedTensorList& p) { return std::make_unique<Optimizer>(p, options); },
          [options, rule] { return rule(options); }};
}

std::vector<Case> all_cases() {
  using namespace optim;
  std::vector<Case> cases;
  const auto sgd = [&](const char* name, SGDOptions o) { cases.push_back(make_case<SGD>(name, o, [](auto x) { return sgd_rule(x); })); };
  sgd("sgd, defaults", {});
  sgd("sgd, decay without momentum", {.lr = 0.1, .weight_decay = 0.3});
  sgd("sgd, momentum, dampening, decay", {.lr = 0.1, .momentum = 0.9, .dampening = 0.4, .weight_decay = 0.1});
  sgd("sgd, nesterov, maximize", {.lr = 0.05, .momentum = 0.8, .nesterov = true, .maximize = true});
  sgd("sgd, keras, momentum, decay", {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1, .convention = Convention::keras});
  sgd("sgd, keras, nesterov", {.lr = 0.1, .momentum = 0.9, .nesterov = true, .convention = Convention::keras});

  const auto adam = [&](const char* name, AdamOptions o, double eps) {
    cases.push_back(make_case<Adam>(name, o, [eps](auto x) { return adam_rule(x, eps); }));
  };
  adam("adam, defaults", {}, 1e-8);
  adam("adam, decay, betas, eps", {.lr = 0.05, .beta1 = 0.7, .beta2 = 0.9, .eps = 1e-2, .weight_decay = 0.2}, 1e-2);
  adam("adam, amsgrad, maximize", {.lr = 0.05, .beta2 = 0.5, .amsgrad = true, .maximize = true}, 1e-8);
  adam("adam, keras", {.lr = 0.05, .weight_decay = 0.1, .convention = Convention::keras}, 1e-7);
  adam("adam, keras, amsgrad", {.lr = 0.05, .beta2 = 0.5, .amsgrad = true, .convention = Convention::keras}, 1e-7);
  const auto adamw = [&](const char* name, AdamWOptions o) {
    cases.push_back(make_case<AdamW>(name, o, [](auto x) { return adam_rule(x, 1e-8); }));
  };
  adamw("adamw, defaults", {});
  adamw("adamw, amsgrad", {.lr = 0.05, .weight_decay = 0.3, .amsgrad = true});

  const auto rmsprop = [&](const char* name, RMSpropOptions o, double lr, double alpha, double eps) {
    cases.push_back(make_case<RMSprop>(name, o, [=](auto x) { return rmsprop_rule(x, lr, alpha, eps); }));
  };
  rmsprop("rmsprop, defaults", {}, 0.01, 0.99, 1e-8);
  rmsprop("rmsprop, centered, momentum, decay",
          {.lr = 0.02, .alpha = 0.8, .eps = 1e-2, .momentum = 0.7, .centered = true, .weight_decay = 0.1}, 0.02, 0.8, 1e-2);
  rmsprop("rmsprop, centered, maximize", {.eps = 0.1, .centered = true, .maximize = true}, 0.01, 0.99, 0.1);
  rmsprop("rmsprop, keras", {.convention = Convention::keras}, 0.001, 0.9, 1e-7);
  rmsprop("rmsprop, keras, momentum", {.lr = 0.02, .momentum = 0.9, .weight_decay = 0.1, .convention = Convention::keras}, 0.02, 0.9, 1e-7);

  const auto adadelta = [&](const char* name, AdadeltaOptions o, double rho, double eps) {
    cases.push_back(make_case<Adadelta>(name, o, [=](auto x) { return adadelta_rule(x, rho, eps); }));
  };
  adadelta("adadelta, defaults", {}, 0.9, 1e-6);
  adadelta("adadelta, decay, rho, maximize", {.lr = 0.5, .rho = 0.7, .eps = 1e-3, .weight_decay = 0.2, .maximize = true}, 0.7, 1e-3);
  adadelta("adadelta, keras", {.convention = Convention::keras}, 0.95, 1e-7);
  return cases;
}

/// Two parameters of different shape; their numbers' reference histories.
struct Problem {
  NamedTensorList parameters;
  std::vector<double> weights;
  std::vector<Rule> rules;

  Problem(DType dtype, const std::function<Rule()>& rule) {
    for (int i = 0; i < 10; ++i) {
      weights.push_back(0.5 - 0.13 * i);
      rules.push_back(rule());
    }
    const Tensor all = from_vector(weights);
    parameters = {{"a", leaf(all.slice(0, 0, 6).reshape({2, 3}).to(dtype))}, {"b", leaf(all.slice(0, 6).to(dtype))}};
  }
  std::vector<double> current() const {
    std::vector<double> all = values(parameters[0].second);
    for (const double v : values(parameters[1].second)) all.push_back(v);
    return all;
  }
  /// Gradients for step t, from the weights as they are.
  void set_gradients(int t) {
    const std::vector<double> w = current();
    std::vector<double> g;
    for (std::size_t i = 0; i < w.size(); ++i) g.push_back(gradient_at(t, i, w[i]));
    std::size_t at = 0;
    for (auto& [name, p] : parameters) {
      const auto n = static_cast<std::size_t>(p.numel());
      const std::vector<double> own(g.begin() + static_cast<std::ptrdiff_t>(at), g.begin() + static_cast<std::ptrdiff_t>(at + n));
      p.set_grad(from_vector(own, p.sizes()).to(p.dtype()));
      at += n;
    }
  }
  void reference_step(int t) {
    for (std::size_t i = 0; i < weights.size(); ++i) rules[i](weights[i], gradient_at(t, i, weights[i]), t);
  }
};

Tensor with_grad(const Tensor& value, const Tensor& gradient) {
  Tensor p = leaf(value);
  p.set_grad(gradient);
  return p;
}

}  // namespace

TEST_CASE("every optimizer follows its rule for 20 steps") {
  const Device device = GENERATE(from_range(test_devices()));
  const DeviceScope scope(device);
  for (const Case& c : all_cases())
    for (const DType dtype : {kFloat64, kFloat32}) {
      INFO(c.name << " " << name_of(dtype));
      Problem problem(dtype, c.rule);
      const auto optimizer = c.make(problem.parameters);
      for (int t = 1; t <= 20; ++t) {
        problem.set_gradients(t);
        const std::vector<double> before = values(problem.parameters[0].second.grad());
        optimizer->step();
        problem.reference_step(t);
        CHECK(values(problem.parameters[0].second.grad()) == before);
      }
      const double tolerance = dtype == kFloat64 ? 1e-12 : 2e-5;
      CHECK_VALUES(problem.current(), problem.weights, tolerance, tolerance);
    }
}

TEST_CASE("a state dict continues an optimizer exactly") {
  const Device device = GENERATE(from_range(test_devices()));
  const DeviceScope scope(device);
  for (const Case& c : all_cases()) {
    INFO(c.name);
    Problem whole(kFloat32, c.rule), parted(kFloat32, c.rule);
    const auto straight = c.make(whole.parameters);
    auto resumed = c.make(parted.parameters);
    for (int t = 1; t <= 12; ++t) {
      whole.set_gradients(t);
      straight->step();
      if (t == 7) {
        StateDict saved;
        for (const auto& [name, tensor] : resumed->state_dict()) saved.emplace(name, tensor.cpu().clone());
        resumed = c.make(parted.parameters);
        resumed->load_state_dict(saved);
      }
      parted.set_gradients(t);
      resumed->step();
    }
    CHECK(whole.current() == parted.current());
  }
}

TEST_CASE("A26: Adam's bias correction and the place of eps") {
  const Device device = GENERATE(from_range(test_devices()));
  const DeviceScope scope(device);
  const Tensor theta = with_grad(zeros({1}), full({1}, 1e-3));
  optim::Adam adam({theta}, {.lr = 0.1, .eps = 1e-3});
  adam.step();
  CHECK_VALUES(theta, {-0.05}, 1e-5);
  adam.step();
  CHECK_VALUES(theta, {-0.10}, 1e-5);
}

TEST_CASE("A27: weight decay without momentum; the gradient and parameters without one are left alone") {
  const Device device = GENERATE(from_range(test_devices()));
  const DeviceScope scope(device);
  const Tensor theta = with_grad(full({1}, 2.0), full({1}, 0.5)), idle = leaf(full({1}, 3.0));
  optim::SGD sgd({theta, idle}, {.lr = 0.1, .weight_decay = 0.1});
  sgd.step();
  CHECK_VALUES(theta, {1.93}, 1e-6);
  CHECK_VALUES(theta.grad(), {0.5});
  CHECK_VALUES(idle, {3});
  CHECK_FALSE(idle.grad().defined());
  sgd.zero_grad();
  CHECK_FALSE(theta.grad().defined());
}

TEST_CASE("a parameter counts its own steps") {
  const Tensor early = with_grad(zeros({1}), full({1}, 1e-3)), late = leaf(zeros({1}));
  optim::Adam adam({early, late}, {.lr = 0.1, .eps = 1e-3});
  adam.step();
  adam.step();
  Tensor p = late;
  p.set_grad(full({1}, 1e-3));
  adam.step();
  CHECK_VALUES(late, {-0.05}, 1e-5);
  CHECK_VALUES(early, {-0.15}, 1e-5);
}

TEST_CASE("a step is seen by a backward that began before") {
  const Tensor w = leaf(ones({2}));
  const Tensor y = square(w).sum();
  y.backward({}, {.retain_graph = true});
  optim::SGD({w}).step();
  CHECK_THROWS_AS(y.backward(), AutogradError);
}

TEST_CASE("half parameters keep float32 states") {
  const Device device = GENERATE(from_range(test_devices()));
  const DeviceScope scope(device);
  for (const DType dtype : {kFloat16, kBFloat16}) {
    // The square of this gradient is below what 16 bits hold (float16: 6e-8).
    const Tensor p = with_grad(zeros({3}, {.dtype = dtype}), full({3}, 1e-4, {.dtype = dtype}));
    optim::Adam adam(NamedTensorList{{"p", p}}, {.lr = 0.5});
    adam.step();
    CHECK_VALUES(p, {-0.5, -0.5, -0.5}, 1e-2);
    CHECK(adam.state_dict().at("state.p.exp_avg_sq").dtype() == kFloat32);
    CHECK(p.dtype() == dtype);
  }
}

TEST_CASE("parameters with gaps, gradients of other layouts, empty parameters") {
  const Tensor base = count_up({3, 2});
  Tensor gaps = base.t();
  gaps.requires_grad_();
  gaps.set_grad(count_up({2, 3}));
  const Tensor strided = with_grad(zeros({2, 2}), Tensor{{1.f, 2.f}, {3.f, 4.f}}.t());
  const Tensor empty_one = with_grad(zeros({0, 3}), zeros({0, 3}));
  optim::SGD sgd({gaps, strided, empty_one}, {.lr = 1, .momentum = 0.5});
  sgd.step();
  CHECK_VALUES(gaps, {0, 1, 2, -2, -1, 0});
  CHECK_VALUES(base, {0, -2, 1, -1, 2, 0});
  CHECK_VALUES(strided, {-1, -3, -2, -4});
}

TEST_CASE("an optimizer follows its module to another dtype and device") {
  nn::Linear layer{2, 1};
  optim::SGD sgd(layer.named_parameters(), {.lr = 0.1, .momentum = 0.9});
  nn::init::zeros_(layer.weight());
  const auto step = [&](DType dtype, Device device) {
    sgd.zero_grad();
    layer(ones({1, 2}, {.dtype = dtype, .device = device})).sum().backward();
    sgd.step();
  };
  step(kFloat32, layer.weight().device());
  layer.to(kFloat64);
  const Device device = test_devices().back();
  layer.to(device);
  step(kFloat64, device);
  CHECK_VALUES(layer.weight(), {-0.1 - 0.19, -0.1 - 0.19}, 1e-6);
  CHECK(sgd.state_dict().at("state.weight.momentum").device() == device);
}

TEST_CASE("groups have hyperparameters of their own") {
  const Tensor a = with_grad(zeros({1}), ones({1})), b = with_grad(ones({1}), ones({1}));
  optim::SGD sgd({{{{"a", a}}, {.lr = 0.1}}, {{{"b", b}}, {.lr = 0.2, .weight_decay = 1}}});
  CHECK(sgd.group_count() == 2);
  sgd.step();
  CHECK_VALUES(a, {-0.1});
  CHECK_VALUES(b, {1 - 0.2 * 2}, 1e-6);
  sgd.set_lr(1, 0.5);
  CHECK(sgd.lr() == 0.1);
  CHECK(sgd.lr(1) == 0.5);
  sgd.set_lr(0.3);
  CHECK(sgd.lr(0) == 0.3);
  CHECK(sgd.lr(1) == 0.3);
  CHECK(sgd.parameters().size() == 2);
  CHECK_THROWS_AS(sgd.lr(2), IndexError);
  CHECK_THROWS_AS(sgd.set_lr(-1), ValueError);
  CHECK_THROWS_AS(sgd.set_lr(std::nan("")), ValueError);
}

TEST_CASE("grad_scale multiplies gradients on the way in") {
  const Tensor w = with_grad(zeros({2}), full({2}, 8.0));
  optim::SGD({w}, {.lr = 1}).step({.grad_scale = 0.25});
  CHECK_VALUES(w, {-2, -2});
  CHECK_VALUES(w.grad(), {8, 8});
}

TEST_CASE("bad parameters and hyperparameters are refused") {
  using namespace optim;
  const Tensor w = leaf(ones({2}));
  CHECK_THROWS_WITH(SGD(std::vector<Tensor>{}), ContainsSubstring("no parameters"));
  CHECK_THROWS_WITH(SGD({w, w}), ContainsSubstring("twice"));
  CHECK_THROWS_WITH(SGD(NamedTensorList{{"w", w}, {"w", leaf(w)}}), ContainsSubstring("'w'"));
  CHECK_THROWS_AS(SGD({w * 2}), ValueError);
  CHECK_THROWS_AS(SGD({zeros({2}, {.dtype = kInt32})}), ValueError);
  CHECK_THROWS_AS(SGD({Tensor()}), ValueError);
  CHECK_THROWS_WITH(SGD({w}, {.lr = -0.5}), ContainsSubstring("-0.5"));
  CHECK_THROWS_AS(SGD({w}, {.lr = std::nan("")}), ValueError);
  CHECK_THROWS_AS(SGD({w}, {.nesterov = true}), ValueError);
  CHECK_THROWS_AS(SGD({w}, {.momentum = 0.9, .dampening = 0.1, .nesterov = true}), ValueError);
  CHECK_THROWS_AS(Adam({w}, {.beta1 = 1}), ValueError);
  CHECK_THROWS_AS(Adam({w}, {.beta2 = -0.1}), ValueError);
  CHECK_THROWS_AS(AdamW({w}, {.eps = -1}), ValueError);
  CHECK_THROWS_AS(RMSprop({w}, {.alpha = 1.5}), ValueError);
  CHECK_THROWS_AS(Adadelta({w}, {.rho = 1.5}), ValueError);
}

TEST_CASE("a state that does not fit changes nothing and says all that is wrong") {
  const Tensor w = with_grad(ones({2}), ones({2}));
  optim::SGD sgd(NamedTensorList{{"w", w}}, {.lr = 0.1, .momentum = 0.9});
  sgd.step();
  StateDict dict = sgd.state_dict();
  CHECK(dict.size() == 3);
  dict["state.w.momentum"] = zeros({3});
  dict["state.x.step"] = scalar(1);
  dict.erase("group.0.lr");
  CHECK_THROWS_WITH(sgd.load_state_dict(dict), ContainsSubstring("'group.0.lr' is missing") &&
                                                   ContainsSubstring("has shape [3], expected [2]") &&
                                                   ContainsSubstring("'state.x.step' is unexpected"));
  CHECK_VALUES(sgd.state_dict().at("state.w.momentum"), {1, 1});
}

TEST_CASE("gradients are clipped by their joint norm or by value") {
  const Device device = GENERATE(from_range(test_devices()));
  const DeviceScope scope(device);
  const Tensor a = with_grad(zeros({2}), Tensor{3.f, 0.f}), b = with_grad(zeros({1}), Tensor{-4.f}), none = leaf(zeros({1}));
  const std::vector<Tensor> all{a, b, none};
  CHECK(optim::clip_grad_norm_(all, 10) == Approx(5));
  CHECK_VALUES(a.grad(), {3, 0});
  CHECK(optim::clip_grad_norm_(all, 1) == Approx(5));
  CHECK_VALUES(a.grad(), {0.6, 0}, 1e-5);
  CHECK_VALUES(b.grad(), {-0.8}, 1e-5);
  optim::clip_grad_value_(all, 0.5);
  CHECK_VALUES(a.grad(), {0.5, 0}, 1e-5);
  CHECK_VALUES(b.grad(), {-0.5}, 1e-5);
  CHECK_FALSE(none.grad().defined());
  Tensor broken = b;
  broken.set_grad(Tensor{std::numeric_limits<float>::infinity()});
  CHECK(std::isinf(optim::clip_grad_norm_(all, 1)));
  CHECK_VALUES(a.grad(), {0.5, 0}, 1e-5);
  CHECK(optim::clip_grad_norm_({none}, 1) == 0);
  CHECK_THROWS_AS(optim::clip_grad_norm_(all, 0), ValueError);
  CHECK_THROWS_AS(optim::clip_grad_value_(all, -1), ValueError);
}

TEST_CASE("one step takes one kernel call per group, device and dtype, and follows no scope") {
  const Tensor a = with_grad(zeros({3}), ones({3})), b = with_grad(zeros({2, 2}), ones({2, 2}));
  const Tensor c = with_grad(zeros({2}, {.dtype = kFloat64}), ones({2}, {.dtype = kFloat64}));
  optim::SGD sgd({a, b, c}, {.lr = 1});
  std::vector<std::string> ops;
  debugging::set_log_sink([&](const PlacementEvent& event) { ops.push_back(event.op + " on " + short_name(event.device)); });
  {
    const DeviceScope elsewhere(test_devices().front());
    sgd.step();
  }
  debugging::set_log_sink(nullptr);
  const std::string expected = "ResourceApplyMomentum on " + short_name(a.device());
  CHECK(ops == std::vector<std::string>{expected, expected});
  CHECK_VALUES(b, {-1, -1, -1, -1});
  CHECK_VALUES(c, {-1, -1});
}
