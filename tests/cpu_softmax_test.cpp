// softmax and cross_entropy of the CPU against loops in double.
#include "kernel_test.hpp"

using namespace kernel_test;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();
const Dims kShapes[] = {{1, 1, 1},    {3, 10, 1}, {64, 10, 1}, {65, 32, 1}, {3, 33, 1}, {2, 1000, 1},
                        {2, 5000, 1}, {2, 5, 3},  {3, 300, 2}, {2, 7, 100}, {130, 4, 1}};

std::vector<double> naive_softmax(const Array& in, bool log) {
  const std::int64_t n = in.sizes()[1], inner = in.sizes()[2];
  std::vector<double> out(static_cast<std::size_t>(in.numel()));
  for (std::int64_t line = 0; line < in.sizes()[0] * inner; ++line) {
    auto at = [&](std::int64_t i) { return (line / inner * n + i) * inner + line % inner; };
    double largest = -kInfinity, sum = 0;
    for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, in[at(i)]);
    for (std::int64_t i = 0; i < n; ++i) sum += std::exp(in[at(i)] - largest);
    for (std::int64_t i = 0; i < n; ++i) {
      const double x = in[at(i)] - largest;
      out[static_cast<std::size_t>(at(i))] = log ? x - std::log(sum) : std::exp(x) / sum;
    }
  }
  return out;
}

}  // namespace

TEST_CASE("softmax and log_softmax agree with loops", "[softmax]") {
  for (DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16})
    for (const Dims& sizes : kShapes)
      for (bool log : {false, true}) {
        const Array in = Array::random(dtype, sizes, 1, Layout::dense, 3);
        Array out(dtype, sizes);
        TL_KERNEL(softmax, out, in, log);
        INFO(name_of(dtype) << " " << tensorlite::detail::concat(sizes) << " log " << log);
        require_close(out, naive_softmax(in, log), dtype == kFloat32 ? 2e-6 : tolerance(dtype));
      }
}

TEST_CASE("softmax of huge values and infinities", "[softmax]") {
  for (std::int64_t n : {2, 40}) {
    std::vector<double> values(static_cast<std::size_t>(n), -kInfinity), expected(values.size(), 0), logs(values);
    values[0] = -5000;
    values[1] = 5000;
    expected[1] = 1;
    logs[0] = -10000;
    logs[1] = 0;
    Array out(kFloat32, {1, n, 1});
    TL_KERNEL(softmax, out, Array::of(kFloat32, {1, n, 1}, values), false);
    require_close(out, expected, 0);
    TL_KERNEL(softmax, out, Array::of(kFloat32, {1, n, 1}, values), true);
    require_close(out, logs, 0);
    values[0] = kNaN;
    TL_KERNEL(softmax, out, Array::of(kFloat32, {1, n, 1}, values), false);
    for (std::int64_t i = 0; i < n; ++i) REQUIRE(std::isnan(out[i]));
  }
}

TEST_CASE("softmax gradients against finite differences", "[softmax]") {
  for (const Dims& sizes : {Dims{3, 10, 1}, Dims{2, 40, 1}, Dims{2, 5, 3}})
    for (bool log : {false, true}) {
      Array in = Array::random(kFloat64, sizes, 2), out(kFloat64, sizes), grad_in(kFloat64, sizes);
      const Array weights = Array::random(kFloat64, sizes, 3);
      TL_KERNEL(softmax, out, in, log);
      TL_KERNEL(softmax_backward, grad_in, weights, out, log);
      require_close(grad_in,
                    numeric_gradient(in,
                                     [&] {
                                       TL_KERNEL(softmax, out, in, log);
                                       return dot(weights, out);
                                     }),
                    1e-8);
    }
}

TEST_CASE("softmax gradients of every dtype and length agree with float64", "[softmax]") {
  for (DType dtype : {kFloat32, kFloat16, kBFloat16})
    for (const Dims& sizes : kShapes)
      for (bool log : {false, true}) {
        const Array g = Array::random(dtype, sizes, 4);
        Array out = Array::random(dtype, sizes, 5, Layout::dense, 0.3), grad(dtype, sizes), out64(kFloat64, sizes), g64(kFloat64, sizes),
              grad64(kFloat64, sizes);
        for (std::int64_t i = 0; i < g.numel(); ++i) {
          if (log) out.set(i, -std::abs(out[i]) - 5);
          out64.set(i, out[i]);
          g64.set(i, g[i]);
        }
        TL_KERNEL(softmax_backward, grad, g, out, log);
        TL_KERNEL(softmax_backward, grad64, g64, out64, log);
        std::vector<double> expected;
        for (std::int64_t i = 0; i < g.numel(); ++i) expected.push_back(grad64[i]);
        INFO(name_of(dtype) << " " << tensorlite::detail::concat(sizes) << " log " << log);
        require_close(grad, expected, tolerance(dtype));
      }
}

// -------------------------------------------------------------------------------------------------------------- cross_entropy
namespace {

DType accumulation(DType dtype) { return dtype == kFloat64 ? kFloat64 : kFloat32; }

struct CrossEntropy {
  Array losses, log_sums, grad;
};
CrossEntropy run_cross_entropy(const Array& logits, const Array& labels, const Array& grad_losses, CrossEntropyParams params) {
  const DType acc = accumulation(logits.view().dtype);
  CrossEntropy r{Array(acc, labels.sizes()), Array(acc, labels.sizes()), Array(logits.view().dtype, logits.sizes())};
  r.losses.fill(77);
  r.grad.fill(77);
  TL_KERNEL(cross_entropy, r.losses, r.log_sums, logits, labels, params);
  TL_KERNEL(cross_entropy_backward, r.grad, grad_losses, logits, r.log_sums, labels, params);
  return r;
}

std::string message_of(const Array& logits, const std::vector<double>& labels, CrossEntropyParams params = {}) {
  const auto rows = static_cast<std::int64_t>(labels.size());
  try {
    run_cross_entropy(logits, Array::of(kInt64, {rows}, labels), Array(kFloat32, {rows}), params);
  } catch (const IndexError& error) { return error.what(); }
  return "";
}

}  // namespace

TEST_CASE("cross_entropy and its gradient agree with loops", "[cross_entropy]") {
  for (DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16})
    for (const Dims& sizes : {Dims{1, 1}, Dims{64, 10}, Dims{70, 32}, Dims{5, 33}, Dims{3, 5000}})
      for (double smoothing : {0.0, 0.1}) {
        const std::int64_t rows = sizes[0], classes = sizes[1];
        const Array logits = Array::random(dtype, sizes, 1, Layout::dense, 3), g = Array::random(accumulation(dtype), {rows}, 2);
        Array labels(kInt64, {rows});
        for (std::int64_t r = 0; r < rows; ++r) labels.set(r, r % 7 == 3 ? -1 : static_cast<double>(r * 13 % classes));
        const auto got = run_cross_entropy(logits, labels, g, {.ignore_index = -1, .label_smoothing = smoothing});
        const auto n = static_cast<double>(classes);
        std::vector<double> losses, gradients;
        for (std::int64_t r = 0; r < rows; ++r) {
          const bool ignored = labels[r] == -1;
          double sum = 0, mean = 0;
          for (std::int64_t c = 0; c < classes; ++c) sum += std::exp(logits[r * classes + c]), mean += logits[r * classes + c] / n;
          const double lse = std::log(sum);
          losses.push_back(ignored ? 0
                                   : (1 - smoothing) * (lse - logits[r * classes + static_cast<std::int64_t>(labels[r])]) +
                                         smoothing * (lse - mean));
          for (std::int64_t c = 0; c < classes; ++c)
            gradients.push_back(ignored ? 0
                                        : g[r] * (std::exp(logits[r * classes + c] - lse) - smoothing / n -
                                                  (static_cast<double>(c) == labels[r] ? 1 - smoothing : 0)));
        }
        INFO(name_of(dtype) << " " << tensorlite::detail::concat(sizes) << " smoothing " << smoothing);
        require_close(got.losses, losses, tolerance(accumulation(dtype)));
        require_close(got.grad, gradients, dtype == kFloat32 ? 2e-6 : tolerance(dtype));
      }
}

TEST_CASE("A06: cross_entropy of huge logits is finite and exact", "[cross_entropy][A06]") {
  for (std::int64_t classes : {2, 40}) {
    Array logits(kFloat32, {2, classes}), g(kFloat32, {2});
    logits.fill(-kInfinity);
    for (std::int64_t r : {0, 1}) logits.set(r * classes, -5000), logits.set(r * classes + 1, 5000);
    g.fill(1);
    const auto got = run_cross_entropy(logits, Array::of(kInt64, {2}, {1, 0}), g, {});
    require_close(got.losses, {0, 10000}, 0);
    REQUIRE((got.grad[0] == 0 && got.grad[1] == 0 && got.grad[classes] == -1 && got.grad[classes + 1] == 1));
    // A small loss beside a huge offset keeps its digits.
    Array offset(kFloat32, {1, classes}), one(kFloat32, {1});
    offset.fill(9000);
    offset.set(0, 9008);
    one.fill(1);
    const auto close_call = run_cross_entropy(offset, Array::of(kInt64, {1}, {0}), one, {});
    const double tail = static_cast<double>(classes - 1) * std::exp(-8.0);
    REQUIRE(std::abs(close_call.losses[0] - std::log1p(tail)) < 1.2e-7);  // one unit in the last place of 1 + tail
    REQUIRE(close_call.grad[1] == Approx(std::exp(-8.0) / (1 + tail)).epsilon(1e-5));
  }
}

TEST_CASE("A07: a label out of range throws, naming it and the number of classes", "[cross_entropy][A07]") {
  Array logits(kFloat32, {2, 5});
  logits.fill(0);
  for (auto [labels, bad] : {std::pair{std::vector<double>{1, 5}, "label 5"}, std::pair{std::vector<double>{1, -1}, "label -1"}}) {
    const std::string message = message_of(logits, labels);
    CHECK(message.find(bad) != std::string::npos);
    CHECK(message.find("5 classes") != std::string::npos);
  }
  CHECK(message_of(logits, {1, -4}, {.ignore_index = -1}).find("label -4") != std::string::npos);
  CHECK(message_of(logits, {1, -1}, {.ignore_index = -1}).empty());
  Array g(kFloat32, {2});
  const auto got = run_cross_entropy(logits, Array::of(kInt64, {2}, {1, 4}), g, {});
  REQUIRE((got.losses[0] + got.losses[1]) / 2 == Approx(1.6094379));
}

TEST_CASE("an ignored row has loss 0 and gradient 0 even where its logits are NaN", "[cross_entropy]") {
  for (std::int64_t classes : {5, 50}) {
    Array logits(kFloat32, {2, classes}), g(kFloat32, {2});
    logits.fill(kNaN);
    for (std::int64_t c = 0; c < classes; ++c) logits.set(c, 0);
    g.fill(1);
    const auto got = run_cross_entropy(logits, Array::of(kInt64, {2}, {0, -100}), g, {});
    REQUIRE((got.losses[0] == Approx(std::log(classes)) && got.losses[1] == 0));
    for (std::int64_t c = 0; c < classes; ++c) REQUIRE(got.grad[classes + c] == 0);
  }
}

TEST_CASE("softmax and cross_entropy give the same bits for 1 and 2 threads", "[softmax][cross_entropy]") {
  for (const Dims& sizes : {Dims{5000, 10, 1}, Dims{300, 1000, 1}, Dims{20, 50, 70}}) {
    const Array in = Array::random(kFloat32, sizes, 6);
    require_same_bits([&] {
      Array out(kFloat32, sizes);
      TL_KERNEL(softmax, out, in, false);
      return out;
    });
  }
  const Array logits = Array::random(kFloat32, {5000, 10}, 7), g = Array::random(kFloat32, {5000}, 8);
  Array labels(kInt64, {5000});
  labels.fill(3);
  require_same_bits([&] { return run_cross_entropy(logits, labels, g, {}).grad; });
  require_same_bits([&] { return run_cross_entropy(logits, labels, g, {}).losses; });
}
