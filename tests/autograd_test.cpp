// Recording, the engine, in-place rules, Function, gradcheck.
#include "test_tensors.hpp"

#include <thread>

using namespace tensorlite;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("gradients add up in leaves and stop at detach and NoGradGuard", "[autograd]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const Tensor x = leaf(Tensor{2.f, 3.f});
  (x * x).sum().backward();
  (x * 4).sum().backward();
  CHECK_VALUES(x.grad(), {8, 10});
  {
    NoGradGuard guard;
    CHECK_FALSE((x * x).requires_grad());
    EnableGradGuard again;
    CHECK((x * x).requires_grad());
  }
  CHECK_FALSE(x.detach().requires_grad());
  CHECK_THROWS_WITH((x.detach() * 2).sum().backward(), ContainsSubstring("not recorded"));
}

TEST_CASE("backward names what is wrong", "[autograd]") {
  const Tensor x = leaf(Tensor{2.f, 3.f});
  const Tensor y = x * x;
  CHECK_THROWS_WITH(y.backward(), ContainsSubstring("[2]") && ContainsSubstring("single element"));
  CHECK_THROWS_AS(y.backward(ones({3})), ShapeError);
  y.backward(ones({2}));
  CHECK_THROWS_WITH(y.backward(ones({2})), ContainsSubstring("retain_graph"));
  CHECK_THROWS_AS(Tensor({1, 2}).requires_grad_(), DTypeError);
  CHECK_THROWS_WITH(Tensor(y).requires_grad_(), ContainsSubstring("Mul"));
}

TEST_CASE("retain_graph, retain_grad and grad()", "[autograd]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const Tensor x = leaf(Tensor{2.f, 3.f});
  Tensor y = x * x;
  y.retain_grad();
  const Tensor z = (y * 3).sum();
  z.backward({}, {.retain_graph = true});
  CHECK_VALUES(y.grad(), {3, 3});
  CHECK_VALUES(x.grad(), {12, 18});
  z.backward();
  CHECK_VALUES(x.grad(), {24, 36});
  const Tensor a = leaf(Tensor{1.f}), unused = leaf(Tensor{1.f});
  const Tensor b = a * 2, c = b * b;
  const std::vector<Tensor> grads = grad({c}, {a, b, unused});
  CHECK_VALUES(grads[0], {8});
  CHECK_VALUES(grads[1], {4});
  CHECK_FALSE(grads[2].defined());
  CHECK_FALSE(a.grad().defined());
}

TEST_CASE("double backward", "[autograd]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const Tensor x = leaf(Tensor{2.f, -1.f});
  const Tensor first = grad({(x * x * x).sum()}, {x}, {}, {.create_graph = true})[0];
  CHECK_VALUES(first, {12, 3});
  first.sum().backward();
  CHECK_VALUES(x.grad(), {12, -6});
}

TEST_CASE("in-place changes: leaves, recorded results, saved tensors, views", "[autograd]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  Tensor x = leaf(Tensor{1.f, 2.f});
  CHECK_THROWS_WITH(x.add_(1), ContainsSubstring("NoGradGuard"));
  {
    NoGradGuard guard;
    x.add_(1);
  }
  CHECK_VALUES(x, {2, 3});
  Tensor y = x * 2;
  y.mul_(x);  // 2 x^2
  y.sum().backward();
  CHECK_VALUES(x.grad(), {8, 12});
  x.set_grad({});
  Tensor e = exp(x);
  const Tensor loss = e.sum();
  e.add_(1);
  CHECK_THROWS_AS((loss + e.sum()).backward(), AutogradError);
  Tensor buffer = zeros({2, 2});
  CHECK_THROWS_WITH(buffer[0].copy_(x), ContainsSubstring("view"));
  Tensor base = x * 1;
  const Tensor view = base.slice(0, 0, 1);
  base.mul_(3);
  CHECK_THROWS_WITH(view * 2, ContainsSubstring("view"));
  Tensor fresh = zeros({2});
  fresh.copy_(x * 5);
  fresh.sum().backward();
  CHECK_VALUES(x.grad(), {5, 5});
  CHECK_THROWS_AS(Tensor({1, 2}).add_(0.5), DTypeError);
  CHECK_THROWS_AS(ones({2}).add_(ones({3, 2})), ShapeError);
}

TEST_CASE("gradients come back in the input's shape, dtype and device", "[autograd]") {
  const Tensor a = leaf(Tensor{1.f, 2.f}), b = ones({3, 2}, {.dtype = kFloat64}).requires_grad_();
  (a * b).sum().backward();
  CHECK(a.grad().dtype() == kFloat32);
  CHECK(a.grad().sizes() == Dims({2}));
  CHECK_VALUES(a.grad(), {3, 3});
  CHECK(b.grad().dtype() == kFloat64);
  if (config::list_logical_devices("GPU").empty()) return;
  const Tensor host = ones({2}, {.device = cpu_device()}).requires_grad_(), device = ones({2}, {.device = gpu_device()}).requires_grad_();
  const Tensor y = host * device;
  CHECK(y.device() == gpu_device());
  y.sum().backward();
  CHECK(host.grad().device() == cpu_device());
  CHECK(device.grad().device() == gpu_device());
}

namespace {
struct Cube : Function<Cube> {
  static Tensor forward(FunctionContext& c, const Tensor& x) {
    c.save_for_backward({x});
    return x * x * x;
  }
  static Gradients backward(FunctionContext& c, const Tensor& g) {
    const Tensor x = c.saved_tensors()[0];
    return {g * 3 * x * x};
  }
};
}  // namespace

TEST_CASE("a user's Function", "[autograd]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const Tensor x = leaf(Tensor{2.f, -1.f});
  const Tensor y = Cube::apply(x);
  CHECK_VALUES(y, {8, -1});
  const Tensor first = grad({y.sum()}, {x}, {}, {.create_graph = true})[0];
  CHECK_VALUES(first, {12, 3});
  first.sum().backward();
  CHECK_VALUES(x.grad(), {12, -6});
  CHECK_FALSE(Cube::apply(x.detach()).requires_grad());
}

namespace {
/// Its backward is wrong on purpose: gradcheck must say so.
struct Wrong : Function<Wrong> {
  static Tensor forward(FunctionContext&, const Tensor& x) { return x * 2; }
  static Gradients backward(FunctionContext&, const Tensor& g) { return {g * 2.01}; }
};
}  // namespace

TEST_CASE("gradcheck passes right gradients and names wrong ones", "[autograd]") {
  const Tensor x = rand({2, 3}, {.dtype = kFloat64, .requires_grad = true});
  CHECK(gradcheck([](const auto& in) { return sin(in[0]) * in[0]; }, {x}));
  const GradcheckResult wrong = gradcheck([](const auto& in) { return Wrong::apply(in[0]); }, {x});
  CHECK_FALSE(wrong);
  CHECK_THAT(wrong.message, ContainsSubstring("input 0, element 0"));
  CHECK_THROWS_AS(gradcheck([](const auto& in) { return in[0]; }, {ones({2}).requires_grad_()}), DTypeError);
  CHECK(gradgradcheck([](const auto& in) { return exp(in[0] * in[0]); }, {x}));
}

TEST_CASE("threads record and run backward on their own graphs", "[autograd][threads]") {
  std::vector<std::thread> threads;
  std::vector<double> sums(4);
  for (std::size_t t = 0; t < sums.size(); ++t) {
    threads.emplace_back([t, &sums] {
      const DeviceScope cpu("/CPU:0");
      for (int i = 0; i < 200; ++i) {
        const Tensor x = full({4}, static_cast<double>(t + 1)).requires_grad_();
        (x * x).sum().backward();
        sums[t] += x.grad().sum().item<double>();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (std::size_t t = 0; t < sums.size(); ++t) CHECK(sums[t] == 200.0 * 8 * static_cast<double>(t + 1));
}
