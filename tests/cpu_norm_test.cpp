// batch_norm and layer_norm of the CPU against loops in double.
#include "kernel_test.hpp"

using namespace kernel_test;

namespace {

constexpr double kEps = 1e-5;

DType statistics(DType dtype) { return dtype == kFloat64 ? kFloat64 : kFloat32; }

struct Norm {
  Array out, mean, inv_std;
};
struct NormGradients {
  Array in, weight, bias;
};
enum class Kind { batch, layer };

std::int64_t statistics_count(Kind kind, const Dims& sizes) { return kind == Kind::batch ? sizes[1] : sizes[0]; }

Norm forward(Kind kind, const Array& in, const View& weight, const View& bias) {
  const DType dtype = in.view().dtype, stats = statistics(dtype);
  const std::int64_t count = statistics_count(kind, in.sizes());
  Norm r{Array(dtype, in.sizes()), Array(stats, {count}), Array(stats, {count})};
  r.out.fill(77);
  if (kind == Kind::batch) TL_KERNEL(batch_norm, r.out, r.mean, r.inv_std, View(), View(), in, weight, bias, 0.1, kEps);
  else TL_KERNEL(layer_norm, r.out, r.mean, r.inv_std, in, weight, bias, kEps);
  return r;
}

NormGradients backward(Kind kind, const Array& in, const Array& weight, const Array& g) {
  const Norm r = forward(kind, in, weight, View());
  const DType dtype = in.view().dtype;
  NormGradients grad{Array(dtype, in.sizes()), Array(dtype, {in.sizes()[1]}), Array(dtype, {in.sizes()[1]})};
  if (kind == Kind::batch) TL_KERNEL(batch_norm_backward, grad.in, grad.weight, grad.bias, g, in, weight, r.mean, r.inv_std);
  else TL_KERNEL(layer_norm_backward, grad.in, grad.weight, grad.bias, g, in, weight, r.mean, r.inv_std);
  return grad;
}

void check_forward(Kind kind, const Array& in, bool affine) {
  const std::int64_t rows = in.sizes()[0], channels = in.sizes()[1];
  const DType dtype = in.view().dtype;
  const Array weight = Array::random(dtype, {channels}, 2), bias = Array::random(dtype, {channels}, 3);
  const Norm got = forward(kind, in, affine ? weight.view() : View(), affine ? bias.view() : View());
  std::vector<double> out(static_cast<std::size_t>(in.numel())), means, inverses;
  const std::int64_t groups = statistics_count(kind, in.sizes()), members = kind == Kind::batch ? rows : channels;
  for (std::int64_t group = 0; group < groups; ++group) {
    auto at = [&](std::int64_t i) { return kind == Kind::batch ? i * channels + group : group * channels + i; };
    double mean = 0, variance = 0;
    for (std::int64_t i = 0; i < members; ++i) mean += in[at(i)] / static_cast<double>(members);
    for (std::int64_t i = 0; i < members; ++i) variance += (in[at(i)] - mean) * (in[at(i)] - mean) / static_cast<double>(members);
    const double inverse = 1 / std::sqrt(variance + kEps);
    means.push_back(mean);
    inverses.push_back(inverse);
    for (std::int64_t i = 0; i < members; ++i) {
      const std::int64_t c = at(i) % channels;
      out[static_cast<std::size_t>(at(i))] = (in[at(i)] - mean) * inverse * (affine ? weight[c] : 1) + (affine ? bias[c] : 0);
    }
  }
  INFO(name_of(dtype) << " " << tensorlite::detail::concat(in.sizes()));
  require_close(got.out, out, 2 * tolerance(dtype));
  require_close(got.mean, means, tolerance(got.mean.view().dtype));
  require_close(got.inv_std, inverses, 10 * tolerance(got.mean.view().dtype));
}

void check_gradients(Kind kind, const Dims& sizes) {
  Array in = Array::random(kFloat64, sizes, 1), weight = Array::random(kFloat64, {sizes[1]}, 2);
  const Array g = Array::random(kFloat64, sizes, 3);
  const NormGradients got = backward(kind, in, weight, g);
  auto loss = [&] { return dot(g, forward(kind, in, weight, View()).out); };
  require_close(got.in, numeric_gradient(in, loss), 1e-6);
  require_close(got.weight, numeric_gradient(weight, loss), 1e-6);
  std::vector<double> sums(static_cast<std::size_t>(sizes[1]));
  for (std::int64_t i = 0; i < g.numel(); ++i) sums[static_cast<std::size_t>(i % sizes[1])] += g[i];
  require_close(got.bias, sums, 1e-12);
}

/// float and half gradients against those of the same numbers in float64.
void check_precision(Kind kind, DType dtype, const Dims& sizes) {
  auto both = [&](unsigned seed, const Dims& s) {
    Array a = Array::random(dtype, s, seed), b(kFloat64, s);
    for (std::int64_t i = 0; i < a.numel(); ++i) b.set(i, a[i]);
    return std::pair(std::move(a), std::move(b));
  };
  const auto [in, in64] = both(1, sizes);
  const auto [weight, weight64] = both(2, {sizes[1]});
  const auto [g, g64] = both(3, sizes);
  const NormGradients got = backward(kind, in, weight, g), expected = backward(kind, in64, weight64, g64);
  auto compare = [&](const Array& a, const Array& b) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < b.numel(); ++i) values.push_back(b[i]);
    INFO(name_of(dtype) << " " << tensorlite::detail::concat(sizes));
    require_close(a, values, 3 * tolerance(dtype));
  };
  compare(got.in, expected.in);
  compare(got.weight, expected.weight);
  compare(got.bias, expected.bias);
}

}  // namespace

TEST_CASE("normalisation agrees with loops", "[norm]") {
  for (Kind kind : {Kind::batch, Kind::layer})
    for (DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16})
      for (const Dims& sizes : {Dims{2, 1}, Dims{7, 3}, Dims{40, 10}, Dims{5, 64}, Dims{300, 33}, Dims{3, 5000}, Dims{5000, 6}})
        for (bool affine : {false, true}) check_forward(kind, Array::random(dtype, sizes, 1), affine);
}

TEST_CASE("normalisation gradients against finite differences", "[norm]") {
  for (Kind kind : {Kind::batch, Kind::layer})
    for (const Dims& sizes : {Dims{7, 3}, Dims{5, 20}, Dims{20, 5}, Dims{3, 70}}) check_gradients(kind, sizes);
}

TEST_CASE("normalisation gradients of float and half types", "[norm]") {
  for (Kind kind : {Kind::batch, Kind::layer})
    for (DType dtype : {kFloat32, kFloat16, kBFloat16})
      for (const Dims& sizes : {Dims{7, 3}, Dims{300, 33}, Dims{70, 700}, Dims{3000, 6}}) check_precision(kind, dtype, sizes);
}

TEST_CASE("A24: the variance of a large offset does not cancel", "[norm][A24]") {
  for (double offset : {1e4, 1e6}) {
    const Array in = Array::of(kFloat32, {4, 1}, {offset - 1, offset, offset + 1, offset + 2});
    Array out(kFloat32, {4, 1}), mean(kFloat32, {1}), inv_std(kFloat32, {1}), running_mean(kFloat32, {1}), running_var(kFloat32, {1});
    running_mean.fill(0);
    running_var.fill(1);
    TL_KERNEL(batch_norm, out, mean, inv_std, running_mean, running_var, in, View(), View(), 0.1, kEps);
    require_close(out, {-1.3416354, -0.4472118, 0.4472118, 1.3416354}, 1e-6);
    REQUIRE(mean[0] == offset + 0.5);
    REQUIRE(running_mean[0] == Approx(0.1 * (offset + 0.5)).epsilon(1e-6));
    REQUIRE(running_var[0] == Approx(1.0666667).epsilon(1e-6));
  }
  const std::int64_t rows = 100000, channels = 3;  // the mean, 1e6 + 1/6, is no float
  Array in(kFloat32, {rows, channels});
  for (std::int64_t i = 0; i < in.numel(); ++i) in.set(i, 1e6 + static_cast<double>(i / channels % 6 == 0));
  const Norm got = forward(Kind::batch, in, View(), View());
  const double deviation = std::sqrt(5.0 / 36 + kEps);
  for (std::int64_t i = 0; i < in.numel(); i += 997)
    if (!close(got.out[i], (in[i] - 1e6 - 1.0 / 6) / deviation, 1e-3)) REQUIRE(got.out[i] == (in[i] - 1e6 - 1.0 / 6) / deviation);
}

TEST_CASE("A25: one row leaves the running variance finite", "[norm][A25]") {
  const Array in = Array::of(kFloat32, {1, 2}, {3, 4});
  Array out(kFloat32, {1, 2}), mean(kFloat32, {2}), inv_std(kFloat32, {2}), running_mean(kFloat32, {2}), running_var(kFloat32, {2});
  running_mean.fill(0);
  running_var.fill(1);
  TL_KERNEL(batch_norm, out, mean, inv_std, running_mean, running_var, in, View(), View(), 0.1, kEps);
  require_close(out, {0, 0}, 0);
  require_close(running_var, {0.9, 0.9}, 1e-6);
  require_close(running_mean, {0.3, 0.4}, 1e-6);
}

TEST_CASE("weight and bias may be of a wider dtype than the input", "[norm]") {
  const Array in = Array::random(kFloat16, {20, 3}, 1), weight = Array::of(kFloat32, {3}, {1, 2, 3}),
              bias = Array::of(kFloat32, {3}, {0.5, 0, -1});
  const Norm plain = forward(Kind::batch, in, View(), View()), affine = forward(Kind::batch, in, weight, bias);
  for (std::int64_t i = 0; i < in.numel(); ++i) REQUIRE(close(affine.out[i], plain.out[i] * weight[i % 3] + bias[i % 3], 4e-3));
}

TEST_CASE("normalisation of no rows", "[norm]") {
  Array empty(kFloat32, {0, 2}), mean(kFloat32, {2}), inv_std(kFloat32, {2}), running(kFloat32, {2}), grad(kFloat32, {2});
  running.fill(5);
  grad.fill(5);
  TL_KERNEL(batch_norm, empty, mean, inv_std, running, running, empty, View(), View(), 0.1, kEps);
  TL_KERNEL(batch_norm_backward, empty, grad, View(), empty, empty, View(), mean, inv_std);
  require_close(running, {5, 5}, 0);
  require_close(grad, {0, 0}, 0);
}

TEST_CASE("normalisation gives the same bits for 1 and 2 threads", "[norm]") {
  for (Kind kind : {Kind::batch, Kind::layer})
    for (const Dims& sizes : {Dims{50000, 8}, Dims{3000, 300}, Dims{400, 5000}}) {
      const Array in = Array::random(kFloat32, sizes, 1), g = Array::random(kFloat32, sizes, 2),
                  weight = Array::random(kFloat32, {sizes[1]}, 3);
      require_same_bits([&] { return forward(kind, in, weight, View()).out; });
      require_same_bits([&] { return backward(kind, in, weight, g).in; });
      require_same_bits([&] { return backward(kind, in, weight, g).weight; });
    }
}
