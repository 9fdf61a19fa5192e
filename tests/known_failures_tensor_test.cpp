// Inputs on which tensor libraries are known to have failed: products, reductions, broadcasting, views, printing.
#include "test_tensors.hpp"

#include <limits>

using namespace tensorlite;
using Catch::Matchers::ContainsSubstring;

namespace {
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
}  // namespace

TEST_CASE("A12 matmul over an inner size of 0, and over memory full of NaN", "[known][matmul]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  { const Tensor garbage = full({4096}, kNan); }  // its block is handed out again
  const Tensor a = leaf(zeros({3, 0})), b = leaf(zeros({0, 2}));
  const Tensor y = matmul(a, b);
  CHECK_VALUES(y, std::vector<double>(6, 0));
  y.sum().backward();
  CHECK(a.grad().sizes() == Dims({3, 0}));
  CHECK(b.grad().sizes() == Dims({0, 2}));
  { const Tensor garbage = full({65 * 17}, kNan); }
  CHECK_VALUES(matmul(ones({65, 33}), ones({33, 17})), std::vector<double>(65 * 17, 33));
  { const Tensor garbage = full({65}, kNan); }
  CHECK_VALUES(matmul(ones({65, 33}), ones({33})), std::vector<double>(65, 33));
}

TEST_CASE("A13 matmul of slices, transposes, size-1 axes and stride 0", "[known][matmul]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const Tensor m = count_up({4, 4}, 1);
  CHECK_VALUES(matmul(m.slice(0, 0, 3).slice(1, 0, 3), m.slice(0, 0, 3).slice(1, 3, 4)), {56, 152, 248});
  CHECK_VALUES(matmul(count_up({2, 3}).t(), ones({2, 1})), {3, 5, 7});
  const Tensor odd = detail::make_view(Tensor{7.f, 1.f}, {1, 1}, {1, 1}), other = detail::make_view(Tensor{6.f, 1.f}, {1, 1}, {1, 1});
  CHECK_VALUES(matmul(odd, other), {42});
  CHECK_VALUES(matmul(Tensor{{2.f}, {3.f}}, Tensor{5.f}.expand({1, 1})), {10, 15});
}

TEST_CASE("A14 float32 sums over a long outer axis do not stop growing", "[known][reduce][large]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const Tensor x = ones({20000000, 2});
  CHECK_VALUES(mean(x, {0}), {1, 1}, 0, 0);
  CHECK_VALUES(sum(x, {0}), {2e7, 2e7}, 0, 0);
  CHECK_VALUES(mean(x.t(), {1}), {1, 1}, 0, 0);
  CHECK(x.mean().item<float>() == 1);
}

TEST_CASE("A15 argmax and argmin: the first NaN wins, as in max", "[known][reduce]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const Tensor x = Tensor{2.0, 7.0, kNan, 9.0, kNan};
  CHECK(std::isnan(x.max().item<float>()));
  CHECK(argmax(x, 0).item<std::int64_t>() == 2);
  CHECK(argmin(x, 0).item<std::int64_t>() == 2);
  CHECK(argmax(full({61}, kNan)).item<std::int64_t>() == 0);
  CHECK(argmin(full({61}, kNan), 0).item<std::int64_t>() == 0);
  CHECK_VALUES(argmax(full({61, 5}, kNan), 0), std::vector<double>(5, 0));
}

TEST_CASE("A16 reductions of empty tensors", "[known][reduce]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const Tensor x = zeros({0, 4});
  CHECK(max(x, {1}).sizes() == Dims({0}));
  CHECK_THROWS_AS(max(x, {0}), ShapeError);
  CHECK_THROWS_WITH(argmax(x, 0), ContainsSubstring("empty"));
  CHECK_VALUES(sum(x, {0}), {0, 0, 0, 0});
  CHECK_VALUES(prod(x, {0}), {1, 1, 1, 1});
  CHECK_VALUES(mean(x, {0}), std::vector<double>(4, kNan));
  CHECK(mean(x, {1}).sizes() == Dims({0}));
  CHECK(zeros({0, 1}).sum().item<float>() == 0);
}

TEST_CASE("A17 broadcasting with axes of size 0", "[known][broadcast]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  CHECK((zeros({1, 1}) + zeros({0, 1})).sizes() == Dims({0, 1}));
  CHECK_THROWS_WITH(zeros({2, 1}) + zeros({0, 1}), ContainsSubstring("[2, 1]") && ContainsSubstring("[0, 1]"));
  const Tensor a = leaf(zeros({2, 0})), b = leaf(ones({2, 1}));
  const Tensor y = a * b;
  CHECK(y.sizes() == Dims({2, 0}));
  y.sum().backward();
  CHECK(a.grad().sizes() == Dims({2, 0}));
  CHECK(b.grad().sizes() == Dims({2, 1}));
  CHECK_VALUES(b.grad(), {0, 0});
}

TEST_CASE("A18 the gradient of a broadcast operand is summed back", "[known][broadcast]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const Tensor x{{1.f, 2.f, 3.f}, {4.f, 5.f, 6.f}}, w = leaf(Tensor{{1.f}, {0.f}, {-1.f}}), b = leaf(Tensor{{0.5f, 1.f, 1.5f}}),
                                                    t{{1.f}, {2.f}};
  const Tensor y = matmul(x, w) + b;
  CHECK_VALUES(y, {-1.5, -1, -0.5, -1.5, -1, -0.5});
  const Tensor d = y - t, loss = (d * d).sum();
  CHECK(loss.item<float>() == 40);
  loss.backward();
  CHECK(b.grad().sizes() == Dims({1, 3}));
  CHECK_VALUES(b.grad(), {-12, -10, -8});
  CHECK(w.grad().sizes() == Dims({3, 1}));
  CHECK_VALUES(w.grad(), {-84, -114, -144});
}

TEST_CASE("A19 copies within one tensor that overlap", "[known][views]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const auto fresh = [] { return count_up({3, 3}); };
  Tensor a = fresh();
  a.slice(1, 1).copy_(a.slice(1, 0, -1));
  CHECK_VALUES(a, {0, 0, 1, 3, 3, 4, 6, 6, 7});
  a = fresh();
  a.slice(0, 1).copy_(a.slice(0, 0, -1));
  CHECK_VALUES(a, {0, 1, 2, 0, 1, 2, 3, 4, 5});
  a = fresh();
  a.slice(1, 0, -1).copy_(a.slice(1, 1));
  CHECK_VALUES(a, {1, 2, 2, 4, 5, 5, 7, 8, 8});
  Tensor big = rand({5000, 100});
  const Tensor before = big.clone();
  big.slice(0, 0, -500).copy_(big.slice(0, 500));
  CHECK_VALUES(big.slice(0, 0, 4500), before.slice(0, 500), 0, 0);
  CHECK_VALUES(big.slice(0, 4500), before.slice(0, 4500), 0, 0);
}

TEST_CASE("A48 a failed allocation leaves everything as it was", "[known][memory]") {
  const Device device = GENERATE(from_range(test_devices()));
  const DeviceScope scope(device);
  const std::int64_t before = config::get_memory_info(short_name(device)).current;
  CHECK_THROWS_AS(empty({1000000, 1000000, 1000}, {.dtype = kUInt8}), OutOfMemoryError);
  CHECK(config::get_memory_info(short_name(device)).current == before);
  CHECK_VALUES(ones({4}) + ones({4}), {2, 2, 2, 2});
}

TEST_CASE("A57 printing", "[known][printing]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  CHECK(Tensor{2e-5}.to_string() == "tl.Tensor([2.e-05], shape=(1,), dtype=float32)");
  CHECK(Tensor{0.05524}.to_string() == "tl.Tensor([0.05524], shape=(1,), dtype=float32)");
  CHECK(Tensor{1e28, -1e-28}.to_string() == "tl.Tensor([ 1.e+28 -1.e-28], shape=(2,), dtype=float32)");
  CHECK(Tensor{2341234123412341}.to_string() == "tl.Tensor([2341234123412341], shape=(1,), dtype=int64)");
  CHECK(scalar(3.f).to_string() == "tl.Tensor(3.0, shape=(), dtype=float32)");
  CHECK(zeros({0, 3}).to_string() == "tl.Tensor([], shape=(0, 3), dtype=float32)");
  CHECK(Tensor{kNan, kInf, -kInf, 1.0}.to_string() == "tl.Tensor([ nan  inf -inf   1.], shape=(4,), dtype=float32)");
  CHECK(matmul(Tensor{{1.f, 2.f, 3.f}, {4.f, 5.f, 6.f}}, Tensor{{1.f, 2.f}, {3.f, 4.f}, {5.f, 6.f}}).to_string() ==
        "tl.Tensor(\n[[22. 28.]\n [49. 64.]], shape=(2, 2), dtype=float32)");
  CHECK(Tensor{{1.5f, 2.25f}}.to_string() == "tl.Tensor([[1.5  2.25]], shape=(1, 2), dtype=float32)");
  CHECK(Tensor{true, false}.to_string() == "tl.Tensor([ True False], shape=(2,), dtype=bool)");
  CHECK(arange(0, 2000).to_string() == "tl.Tensor([   0    1    2 ... 1997 1998 1999], shape=(2000,), dtype=int64)");
}

TEST_CASE("A59 an output that is its own input", "[known][alias]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const auto fresh = [] { return Tensor{{1.f, 2.f}, {3.f, 4.f}}; };
  Tensor a = fresh();
  a.copy_(a.t());
  CHECK_VALUES(a, {1, 3, 2, 4});
  a = fresh();
  a.copy_(matmul(a, Tensor{{5.f, 6.f}, {7.f, 8.f}}));
  CHECK_VALUES(a, {19, 22, 43, 50});
  a = fresh();
  a.copy_(index_select(a, 0, Tensor{1, 0}));
  CHECK_VALUES(a, {3, 4, 1, 2});
  a = fresh();
  a.add_(a.t());
  CHECK_VALUES(a, {2, 5, 5, 8});
}

TEST_CASE("A60 matmul: zero times NaN and infinity is NaN at every size", "[known][matmul]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  for (const double bad : {kNan, kInf}) {
    CHECK_VALUES(matmul(Tensor{{0.f, 1.f}}, Tensor{{bad}, {2.0}}), {kNan});
    for (const std::int64_t n : {64, 65}) {
      Tensor a = zeros({n, n}), b = zeros({n, n});
      a.slice(0, 3, 4).slice(1, 1, 2).fill_(1);
      b.slice(0, 0, 1).slice(1, 5, 6).fill_(bad);
      const std::vector<double> y = values(matmul(a, b));
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < n; ++j) CHECK(std::isnan(y[static_cast<std::size_t>(i * n + j)]) == (j == 5));
    }
  }
}
