// Inputs on which tensor libraries are known to have failed: losses, autograd, normalisation, dropout.
#include "test_tensors.hpp"

#include <limits>
#include <pthread.h>
#include <thread>

using namespace tensorlite;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("A06 cross-entropy of huge logits", "[known][loss]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const Tensor logits = leaf(Tensor{{-5000.f, 5000.f}});
  const Tensor soft = cross_entropy(logits, Tensor{{0.25f, 0.75f}});
  CHECK(soft.item<float>() == 2500);
  soft.backward();
  CHECK_VALUES(logits.grad(), {-0.25, 0.25});
  logits.set_grad({});
  const Tensor hard = cross_entropy(logits, Tensor{{1.f, 0.f}});
  CHECK(hard.item<float>() == 10000);
  hard.backward();
  CHECK_VALUES(logits.grad(), {-1, 1});
  CHECK(cross_entropy(logits, Tensor{1}).item<float>() == 0);
  CHECK(cross_entropy(logits, Tensor{0}).item<float>() == 10000);
}

TEST_CASE("A07 cross-entropy names a label that is out of range", "[known][loss]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const Tensor logits = zeros({2, 5});
  CHECK_THROWS_WITH(cross_entropy(logits, Tensor{1, 5}), ContainsSubstring("5"));
  CHECK_THROWS_AS((cross_entropy(logits, Tensor{1, 5}), synchronize()), IndexError);
  CHECK_THROWS_WITH(cross_entropy(logits, Tensor{1, -1}), ContainsSubstring("-1") && ContainsSubstring("5"));
  CHECK_THROWS_WITH(cross_entropy(logits, Tensor{1, -4}, {.ignore_index = -1}), ContainsSubstring("-4"));
  CHECK_VALUES(cross_entropy(logits, Tensor{1, 4}), {1.6094379});
  CHECK_VALUES(cross_entropy(logits, Tensor{1, -1}, {.ignore_index = -1}), {1.6094379});
}

namespace {
/// Runs a function on a thread with this much stack.
void on_small_stack(std::size_t bytes, void (*body)()) {
  pthread_attr_t attributes;
  REQUIRE(pthread_attr_init(&attributes) == 0);
  REQUIRE(pthread_attr_setstacksize(&attributes, bytes) == 0);
  pthread_t thread;
  const auto run = [](void* f) -> void* {
    reinterpret_cast<void (*)()>(f)();
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, &attributes, run, reinterpret_cast<void*>(body)) == 0);
  REQUIRE(pthread_join(thread, nullptr) == 0);
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kLinks = 30000;  // the sanitizers' frames and bookkeeping are ten times as large
#else
constexpr int kLinks = 300000;
#endif
float gradient_of_long_chain = 0;
}  // namespace

TEST_CASE("A20 a chain of 300,000 operations is walked and freed on a small stack", "[known][autograd]") {
  on_small_stack(512 * 1024, [] {
    const DeviceScope cpu("/CPU:0");
    const Tensor x = ones({1}).requires_grad_();
    {
      Tensor y = x;
      for (int i = 0; i < kLinks; ++i) y = y + x * 0;
    }
    Tensor y = x;
    for (int i = 0; i < kLinks; ++i) y = y * 1;
    y.backward();
    gradient_of_long_chain = x.grad().item<float>();
  });
  CHECK(gradient_of_long_chain == 1);
}

TEST_CASE("A21 a saved tensor changed through an alias is noticed", "[known][autograd]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const Tensor a = leaf(Tensor{1.f, 2.f, 3.f});
  const Tensor s = sigmoid(a);
  s.detach().fill_(0);
  CHECK_THROWS_WITH(s.sum().backward(), ContainsSubstring("modified"));
  CHECK_THROWS_AS(s.sum().backward(), AutogradError);
  sigmoid(a).sum().backward();
  CHECK_VALUES(a.grad(), {0.19661193, 0.10499359, 0.04517666});
}

TEST_CASE("A22 two leaves never share a gradient's memory", "[known][autograd]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const Tensor a = leaf(Tensor{1.f, 2.f}), b = leaf(Tensor{3.f, 4.f});
  (a + b).sum().backward();
  a.grad()[0].fill_(100);
  CHECK_VALUES(b.grad(), {1, 1});
  const Tensor x = leaf(Tensor{1.f, 2.f});
  (x + x).sum().backward();
  CHECK_VALUES(x.grad(), {2, 2});
  x.set_grad({});
  (x * x + x).sum().backward();
  CHECK_VALUES(x.grad(), {3, 5});
  (x * x + x).sum().backward();
  CHECK_VALUES(x.grad(), {6, 10});
}

TEST_CASE("A23 the gradient of the norm at zero is zero", "[known][autograd]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const Tensor v = leaf(zeros({3}));
  norm(v).backward();
  CHECK_VALUES(v.grad(), {0, 0, 0});
  v.set_grad({});
  square(norm(v)).backward();
  CHECK_VALUES(v.grad(), {0, 0, 0});
  const Tensor w = leaf(Tensor{3.f, 4.f});
  norm(w).backward();
  CHECK_VALUES(w.grad(), {0.6, 0.8});
}

TEST_CASE("A24 batch norm of large means with small variance", "[known][norm]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  for (const double offset : {0.0, 990000.0}) {
    for (const Dims& sizes : {Dims{4, 1}, Dims{1, 2, 2, 1}}) {
      const Tensor x = (Tensor{9999.f, 10000.f, 10001.f, 10002.f} + offset).reshape(sizes);
      Tensor running_mean = zeros({1}), running_var = ones({1});
      const Tensor y = batch_norm_train(x, ones({1}), zeros({1}), running_mean, running_var);
      CHECK_VALUES(y, {-1.3416354, -0.4472118, 0.4472118, 1.3416354}, 1e-3);
      if (offset != 0) continue;
      CHECK_VALUES(running_mean, {1000.05});
      CHECK_VALUES(running_var, {1.0666667});
    }
  }
}

TEST_CASE("A25 batch norm with one value per channel", "[known][norm]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  Tensor mean = zeros({4}), var = ones({4});
  const Tensor one = ones({4}), zero = zeros({4});
  CHECK_THROWS_WITH(batch_norm_train(ones({1, 4}), one, zero, mean, var), ContainsSubstring("[1, 4]"));
  CHECK_THROWS_AS(batch_norm_train(ones({1, 1, 1, 4}), one, zero, mean, var), ShapeError);
  batch_norm_train(rand({1, 2, 2, 4}), one, zero, mean, var);
  batch_norm_eval(rand({1, 4}), one, zero, mean, var);
  for (double v : values(var)) CHECK(std::isfinite(v));
}

TEST_CASE("A28 dropout with probability 1, 0 and out of range", "[known][dropout]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const Tensor x = leaf(Tensor{1.f, 2.f, 3.f});
  const Tensor all = dropout(x, 1);
  CHECK_VALUES(all, {0, 0, 0});
  all.sum().backward();
  CHECK_VALUES(x.grad(), {0, 0, 0});
  x.set_grad({});
  const Tensor none = dropout(x, 0);
  CHECK_VALUES(none, {1, 2, 3});
  none.sum().backward();
  CHECK_VALUES(x.grad(), {1, 1, 1});
  for (const double p : {-0.1, 1.5, std::numeric_limits<double>::quiet_NaN()}) CHECK_THROWS_AS(dropout(x, p), ValueError);
}

TEST_CASE("A29 dropout masks depend on the seed, not on the threads", "[known][random]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const Tensor x = ones({1000000});
  manual_seed(123);
  const std::vector<float> expected = dropout(x, 0.5).cpu().to_vector<float>(), second = dropout(x, 0.5).cpu().to_vector<float>();
  CHECK(expected != second);
  const auto kept = std::count_if(expected.begin(), expected.end(), [](float v) { return v != 0; });
  CHECK(std::abs(kept - 500000) < 2000);
  for (std::size_t chunk = 1; chunk < 8; ++chunk)
    CHECK(!std::equal(expected.begin(), expected.begin() + 125000, expected.begin() + static_cast<std::ptrdiff_t>(chunk * 125000)));
  const int threads = config::get_num_threads();
  for (const int n : {1, 2, 3, 8}) {
    config::set_num_threads(n);
    for (int run = 0; run < 5; ++run) {
      manual_seed(123);
      CHECK(dropout(x, 0.5).cpu().to_vector<float>() == expected);
    }
  }
  config::set_num_threads(threads);
}
