// optimizer_step of the CPU against the published update rules, written out in double.
#include "kernel_test.hpp"

using namespace kernel_test;

namespace {

/// One number's history under an optimizer.
struct Element {
  double weight, state[3] = {0, 0, 0};
};

/// PyTorch's formulas (torch.optim), and Keras's (keras.optimizers) where they differ.
void reference_step(OptimizerKind kind, const OptimizerParams& p, Element& e, double gradient) {
  double g = gradient * p.grad_scale * (p.maximize ? -1 : 1);
  if (p.decoupled_decay || p.keras) e.weight -= p.lr * p.weight_decay * e.weight;
  else g += p.weight_decay * e.weight;
  double(&s)[3] = e.state;
  const auto t = static_cast<double>(p.step);
  switch (kind) {
    case OptimizerKind::sgd:
      if (p.momentum == 0) {
        e.weight -= p.lr * g;
      } else if (p.keras) {
        s[0] = p.momentum * s[0] - p.lr * g;
        e.weight += p.nesterov ? p.momentum * s[0] - p.lr * g : s[0];
      } else {
        s[0] = p.step == 1 ? g : p.momentum * s[0] + (1 - p.dampening) * g;
        e.weight -= p.lr * (p.nesterov ? g + p.momentum * s[0] : s[0]);
      }
      return;
    case OptimizerKind::adam: {
      s[0] = p.beta1 * s[0] + (1 - p.beta1) * g;
      s[1] = p.beta2 * s[1] + (1 - p.beta2) * g * g;
      s[2] = std::max(s[2], s[1]);
      const double v = p.amsgrad ? s[2] : s[1], c1 = 1 - std::pow(p.beta1, t), c2 = 1 - std::pow(p.beta2, t);
      if (p.keras) e.weight -= p.lr * std::sqrt(c2) / c1 * s[0] / (std::sqrt(v) + p.eps);
      else e.weight -= p.lr * (s[0] / c1) / (std::sqrt(v / c2) + p.eps);
      return;
    }
    case OptimizerKind::rmsprop: {
      s[0] = p.beta2 * s[0] + (1 - p.beta2) * g * g;
      if (p.centered) s[2] = p.beta2 * s[2] + (1 - p.beta2) * g;
      const double step = g / (std::sqrt(s[0] - s[2] * s[2]) + p.eps);
      if (p.momentum == 0) {
        e.weight -= p.lr * step;
      } else {
        s[1] = p.momentum * s[1] + (p.keras ? p.lr : 1) * step;
        e.weight -= (p.keras ? 1 : p.lr) * s[1];
      }
      return;
    }
    case OptimizerKind::adadelta: {
      s[0] = p.beta2 * s[0] + (1 - p.beta2) * g * g;
      const double delta = std::sqrt(s[1] + p.eps) / std::sqrt(s[0] + p.eps) * g;
      s[1] = p.beta2 * s[1] + (1 - p.beta2) * delta * delta;
      e.weight -= p.lr * delta;
    }
  }
}

struct Setting {
  const char* name;
  OptimizerKind kind;
  OptimizerParams params;
};
const Setting kSettings[] = {
    {"sgd", OptimizerKind::sgd, {.lr = 0.1}},
    {"sgd, decay, no momentum", OptimizerKind::sgd, {.lr = 0.1, .weight_decay = 0.1}},
    {"sgd, momentum, dampening, decay", OptimizerKind::sgd, {.lr = 0.1, .weight_decay = 0.01, .momentum = 0.9, .dampening = 0.3}},
    {"sgd, nesterov, maximize", OptimizerKind::sgd, {.lr = 0.1, .momentum = 0.9, .nesterov = true, .maximize = true}},
    {"sgd, keras", OptimizerKind::sgd, {.lr = 0.1, .weight_decay = 0.01, .momentum = 0.9, .keras = true}},
    {"sgd, keras, nesterov", OptimizerKind::sgd, {.lr = 0.1, .momentum = 0.9, .nesterov = true, .keras = true}},
    {"adam", OptimizerKind::adam, {.lr = 0.01, .weight_decay = 0.1, .eps = 1e-8, .beta1 = 0.9, .beta2 = 0.999}},
    {"adam, clipped", OptimizerKind::adam, {.lr = 0.01, .eps = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .grad_scale = 0.25}},
    {"adam, amsgrad", OptimizerKind::adam, {.lr = 0.01, .eps = 1e-8, .beta1 = 0.9, .beta2 = 0.9, .amsgrad = true}},
    {"adamw", OptimizerKind::adam, {.lr = 0.01, .weight_decay = 0.1, .eps = 1e-8, .beta1 = 0.9, .beta2 = 0.999, .decoupled_decay = true}},
    {"adam, keras", OptimizerKind::adam, {.lr = 0.01, .eps = 1e-3, .beta1 = 0.9, .beta2 = 0.99, .keras = true}},
    {"adam, keras, amsgrad", OptimizerKind::adam, {.lr = 0.01, .eps = 1e-7, .beta1 = 0.9, .beta2 = 0.9, .amsgrad = true, .keras = true}},
    {"rmsprop", OptimizerKind::rmsprop, {.lr = 0.01, .weight_decay = 0.1, .eps = 1e-6, .beta2 = 0.9}},
    {"rmsprop, centered, momentum", OptimizerKind::rmsprop, {.lr = 0.01, .eps = 1e-2, .momentum = 0.9, .beta2 = 0.9, .centered = true}},
    {"rmsprop, keras, momentum", OptimizerKind::rmsprop, {.lr = 0.01, .eps = 1e-6, .momentum = 0.9, .beta2 = 0.9, .keras = true}},
    {"adadelta", OptimizerKind::adadelta, {.lr = 1, .weight_decay = 0.01, .eps = 1e-6, .beta2 = 0.9}},
};

/// Parameters of several sizes with gradients and three states each.
struct Problem {
  std::vector<Array> weights, gradients, states;

  Problem(DType dtype, DType state_dtype, const std::vector<std::int64_t>& sizes) {
    unsigned seed = 1;
    for (const std::int64_t n : sizes) {
      weights.push_back(Array::random(dtype, {n}, seed++));
      gradients.push_back(Array::random(dtype, {n}, seed++));
    }
    for (int s = 0; s < 3; ++s)
      for (const std::int64_t n : sizes) states.emplace_back(state_dtype, Dims{n});
  }
  static std::vector<View> views(const std::vector<Array>& arrays) {
    std::vector<View> result;
    for (const Array& a : arrays) result.push_back(a.view());
    return result;
  }
  void step(OptimizerKind kind, const OptimizerParams& params) {
    const auto w = views(weights), g = views(gradients), s = views(states);
    TL_KERNEL(optimizer_step, kind, std::span(w), std::span(g), std::span(s), params);
  }
};

/// A single number stepped `steps` times under a constant gradient.
double run_one(OptimizerKind kind, OptimizerParams params, double weight, double gradient, int steps) {
  const Array w = Array::of(kFloat64, {1}, {weight}), g = Array::of(kFloat64, {1}, {gradient});
  const Array s[3] = {Array(kFloat64, {1}), Array(kFloat64, {1}), Array(kFloat64, {1})};
  const View ws[] = {w.view()}, gs[] = {g.view()}, ss[] = {s[0].view(), s[1].view(), s[2].view()};
  for (int t = 1; t <= steps; ++t) {
    params.step = t;
    TL_KERNEL(optimizer_step, kind, std::span(ws), std::span(gs), std::span(ss), params);
  }
  REQUIRE(g[0] == gradient);
  return w[0];
}

}  // namespace

TEST_CASE("every optimizer follows its published rule", "[cpu]") {
  const DType dtype = GENERATE(kFloat32, kFloat64, kBFloat16);
  for (const Setting& setting : kSettings) {
    Problem problem(dtype, is_half(dtype) ? kFloat32 : dtype, {1, 37, 0, 5000});
    std::vector<std::vector<Element>> expected;
    for (const Array& w : problem.weights) {
      expected.emplace_back();
      for (std::int64_t i = 0; i < w.numel(); ++i) expected.back().push_back({w[i]});
    }
    OptimizerParams params = setting.params;
    for (params.step = 1; params.step <= 4; ++params.step) {
      problem.step(setting.kind, params);
      for (std::size_t k = 0; k < expected.size(); ++k)
        for (std::size_t i = 0; i < expected[k].size(); ++i) {
          Element& e = expected[k][i];
          reference_step(setting.kind, params, e, problem.gradients[k][static_cast<std::int64_t>(i)]);
          const double got = problem.weights[k][static_cast<std::int64_t>(i)];
          INFO(setting.name << " step " << params.step << " parameter " << k << " element " << i);
          if (!close(got, e.weight, 10 * tolerance(dtype))) REQUIRE(got == e.weight);
          if (is_half(dtype)) e.weight = got;  // its own rounding is not what is asked about
        }
    }
  }
  SUCCEED();
}

TEST_CASE("Adam corrects the bias before eps is added", "[cpu]") {
  const OptimizerParams params = {.lr = 0.1, .eps = 1e-3, .beta1 = 0.9, .beta2 = 0.999};
  CHECK(run_one(OptimizerKind::adam, params, 0, 1e-3, 1) == Approx(-0.05).epsilon(1e-9));
  CHECK(run_one(OptimizerKind::adam, params, 0, 1e-3, 2) == Approx(-0.10).epsilon(1e-9));
}

TEST_CASE("SGD decays weights without momentum and leaves the gradient alone", "[cpu]") {
  CHECK(run_one(OptimizerKind::sgd, {.lr = 0.1, .weight_decay = 0.1}, 2, 0.5, 1) == Approx(1.93).epsilon(1e-12));
}

TEST_CASE("a parameter without a gradient is untouched", "[cpu]") {
  const Array w0 = Array::of(kFloat32, {2}, {1, 2}), w1 = Array::of(kFloat32, {2}, {3, 4}), g1 = Array::of(kFloat32, {2}, {1, 1});
  const View weights[] = {w0.view(), w1.view()}, gradients[] = {View(), g1.view()};
  TL_KERNEL(optimizer_step, OptimizerKind::sgd, std::span(weights), std::span(gradients), std::span<const View>(),
            OptimizerParams{.lr = 0.5, .weight_decay = 0.5, .step = 1});
  require_close(w0, {1, 2}, 0);
  require_close(w1, {3 - 0.5 * 2.5, 4 - 0.5 * 3}, 1e-6);
}

TEST_CASE("an optimizer's step is the same with 1 and 2 threads", "[cpu]") {
  const DType dtype = GENERATE(kFloat32, kFloat16);
  require_same_bits([&] {
    Problem problem(dtype, kFloat32, {100000, 3, 40000});
    problem.step(OptimizerKind::adam, {.lr = 0.01, .eps = 1e-8, .beta1 = 0.9, .beta2 = 0.999, .step = 1});
    return std::move(problem.weights[0]);
  });
}

TEST_CASE("integer parameters are refused", "[cpu]") {
  Problem problem(kInt32, kInt32, {4});
  CHECK_THROWS_AS(problem.step(OptimizerKind::sgd, {.lr = 1, .step = 1}), DTypeError);
}
