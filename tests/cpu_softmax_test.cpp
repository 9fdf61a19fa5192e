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
