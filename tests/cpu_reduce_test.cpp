// reduce, arg_reduce and cumsum of the CPU against loops in double.
#include "kernel_test.hpp"

#include <numeric>

using namespace kernel_test;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr ReduceOp kFloatOps[] = {ReduceOp::sum, ReduceOp::mean, ReduceOp::prod,  ReduceOp::max, ReduceOp::min,
                                  ReduceOp::any, ReduceOp::all,  ReduceOp::norm2, ReduceOp::var, ReduceOp::logsumexp};
constexpr ReduceOp kIntegerOps[] = {ReduceOp::sum, ReduceOp::prod, ReduceOp::max, ReduceOp::min, ReduceOp::any, ReduceOp::all};

double naive(ReduceOp op, const std::vector<double>& v, double correction) {
  const auto n = static_cast<double>(v.size());
  const double sum = std::accumulate(v.begin(), v.end(), 0.0);
  auto fold = [&](double start, auto f) { return std::accumulate(v.begin(), v.end(), start, f); };
  switch (op) {
    case ReduceOp::sum: return sum;
    case ReduceOp::mean: return sum / n;
    case ReduceOp::prod: return fold(1, [](double a, double b) { return a * b; });
    case ReduceOp::max: return fold(-kInfinity, [](double a, double b) { return a != a || b != b ? kNaN : std::max(a, b); });
    case ReduceOp::min: return fold(kInfinity, [](double a, double b) { return a != a || b != b ? kNaN : std::min(a, b); });
    case ReduceOp::any: return fold(0, [](double a, double b) { return a || b != 0; });
    case ReduceOp::all: return fold(1, [](double a, double b) { return a && b != 0; });
    case ReduceOp::norm2: return std::sqrt(fold(0, [](double a, double b) { return a + b * b; }));
    case ReduceOp::var:
      return fold(0, [&](double a, double b) { return a + (b - sum / n) * (b - sum / n); }) / (n > correction ? n - correction : kNaN);
    default: {
      const double largest = naive(ReduceOp::max, v, 0), center = std::isfinite(largest) ? largest : 0;
      return center + std::log(fold(0, [&](double a, double b) { return a + std::exp(b - center); }));
    }
  }
}

/// Row-major list of the values that each output of a reduction sees.
std::vector<std::vector<double>> groups(const Array& in, const Dims& out_sizes) {
  std::vector<std::vector<double>> result(static_cast<std::size_t>(out_sizes.product()));
  for (std::int64_t i = 0; i < in.numel(); ++i) {
    std::int64_t rest = i, at = 0, stride = 1;
    for (int axis = in.view().dim() - 1; axis >= 0; --axis) {
      const std::int64_t k = rest % in.sizes()[axis];
      rest /= in.sizes()[axis];
      at += out_sizes[axis] == 1 ? 0 : k * stride;
      stride *= out_sizes[axis];
    }
    result[static_cast<std::size_t>(at)].push_back(in[i]);
  }
  return result;
}

Dims reduced_sizes(Dims sizes, std::uint32_t axes) {
  for (int i = 0; i < sizes.size(); ++i)
    if (axes >> i & 1u) sizes[i] = 1;
  return sizes;
}

DType result_dtype(ReduceOp op, DType in) {
  if (op == ReduceOp::any || op == ReduceOp::all) return kBool;
  return is_floating(in) || op == ReduceOp::max || op == ReduceOp::min ? in : kInt64;
}

/// Infinity where the dtype overflows.
double rounded(DType dtype, double value) { return dtype == kFloat32 ? static_cast<float>(value) : value; }

void check_reduce(ReduceOp op, const Array& in, std::uint32_t axes, double correction = 1) {
  Array out(result_dtype(op, in.view().dtype), reduced_sizes(in.sizes(), axes));
  out.fill(77);
  TL_KERNEL(reduce, op, out, in, axes, correction);
  std::vector<double> expected;
  for (const auto& group : groups(in, out.sizes())) expected.push_back(rounded(out.view().dtype, naive(op, group, correction)));
  INFO("op " << int(op) << " dtype " << name_of(in.view().dtype) << " sizes " << tensorlite::detail::concat(in.sizes()) << " strides "
             << tensorlite::detail::concat(in.view().strides) << " axes " << axes);
  require_close(out, expected, tolerance(out.view().dtype) * (op == ReduceOp::sum ? 4 : 2));
}

}  // namespace

TEST_CASE("reduce agrees with loops for every set of axes and layout", "[reduce]") {
  const Dims shapes[] = {{}, {7}, {5, 3}, {3, 4, 5}, {2, 3, 1, 4}, {33, 20}, {2, 17, 18}, {600, 5}, {5, 600}, {3, 2, 70, 3}};
  for (const Dims& sizes : shapes)
    for (Layout layout : kLayouts)
      for (std::uint32_t axes = 0; axes < 1u << sizes.size(); ++axes) {
        const Array in = Array::random(kFloat32, sizes, 1, layout);
        for (ReduceOp op : kFloatOps) check_reduce(op, in, axes);
      }
}

TEST_CASE("reduce of every dtype", "[reduce]") {
  for (DType dtype : {kFloat64, kFloat16, kBFloat16})
    for (Layout layout : {Layout::dense, Layout::stepped})
      for (std::uint32_t axes : {1u, 2u, 3u, 4u, 5u}) {
        const Array in = Array::random(dtype, {6, 9, 20}, 2, layout, 0.5);
        for (ReduceOp op : kFloatOps) check_reduce(op, in, axes);
      }
  for (DType dtype : {kInt32, kInt64, kUInt8, kBool})
    for (Layout layout : {Layout::dense, Layout::reversed_axes})
      for (std::uint32_t axes : {1u, 2u, 3u, 5u}) {
        const Array in = Array::random(dtype, {4, 3, 20}, 3, layout);
        for (ReduceOp op : kIntegerOps) check_reduce(op, in, axes);
      }
}

TEST_CASE("reduce keeps int64 exact", "[reduce]") {
  Array in(kInt64, {2});
  in.view().ptr<std::int64_t>()[0] = (std::int64_t{1} << 60) + 1;
  in.view().ptr<std::int64_t>()[1] = 2;
  const Array out(kInt64, {1});
  TL_KERNEL(reduce, ReduceOp::sum, out, in, 1u, 0.0);
  REQUIRE(out.view().ptr<std::int64_t>()[0] == (std::int64_t{1} << 60) + 3);
  TL_KERNEL(reduce, ReduceOp::max, out, in, 1u, 0.0);
  REQUIRE(out.view().ptr<std::int64_t>()[0] == (std::int64_t{1} << 60) + 1);
}

TEST_CASE("A14: twenty million float32 ones average to exactly 1 over the outer axis", "[reduce][A14]") {
  const std::int64_t n = 20000000;
  std::vector<float> ones(static_cast<std::size_t>(2 * n), 1.0f);
  Array mean(kFloat32, {1, 2}), sum(kFloat32, {2, 1}), all(kFloat32, {1, 1});
  const View rows(ones.data(), kFloat32, cpu_device(), {n, 2}, {2, 1}), columns(ones.data(), kFloat32, cpu_device(), {2, n}, {1, 2});
  const View dense(ones.data(), kFloat32, cpu_device(), {2, n}, {n, 1});
  TL_KERNEL(reduce, ReduceOp::mean, mean, rows, 1u, 0.0);
  REQUIRE((mean[0] == 1.0 && mean[1] == 1.0));
  for (const View& view : {columns, dense}) {
    TL_KERNEL(reduce, ReduceOp::sum, sum, view, 2u, 0.0);
    REQUIRE((sum[0] == 2e7 && sum[1] == 2e7));
  }
  TL_KERNEL(reduce, ReduceOp::mean, all, rows, 3u, 0.0);
  REQUIRE(all[0] == 1.0);
}

TEST_CASE("A15, A16: NaN wins and empty reductions have their values", "[reduce][A15][A16]") {
  for (std::int64_t n : {5, 16, 61, 5000, 200000})
    for (std::int64_t width : {1, 3, 40})
      for (std::int64_t place : {std::int64_t{0}, n / 2, n - 1}) {
        Array in = Array::random(kFloat32, {n, width}, 4);
        for (std::int64_t j = 0; j < width; ++j) in.set(place * width + j, kNaN);
        Array out(kFloat32, {1, width});
        for (ReduceOp op : {ReduceOp::max, ReduceOp::min}) {
          out.fill(0);
          TL_KERNEL(reduce, op, out, in, 1u, 0.0);
          for (std::int64_t j = 0; j < width; ++j) REQUIRE(std::isnan(out[j]));
        }
      }
  const std::pair<ReduceOp, double> empty[] = {
      {ReduceOp::sum, 0}, {ReduceOp::prod, 1}, {ReduceOp::mean, kNaN}, {ReduceOp::logsumexp, -kInfinity}};
  for (auto [op, value] : empty) {
    Array out(kFloat32, {1, 4});
    TL_KERNEL(reduce, op, out, Array(kFloat32, {0, 4}), 1u, 0.0);
    require_close(out, {value, value, value, value}, 0);
  }
  Array flag(kBool, {1});
  TL_KERNEL(reduce, ReduceOp::all, flag, Array(kBool, {0}), 1u, 0.0);
  REQUIRE(flag[0] == 1);
  TL_KERNEL(reduce, ReduceOp::any, flag, Array(kBool, {0}), 1u, 0.0);
  REQUIRE(flag[0] == 0);
}

TEST_CASE("logsumexp of infinities and large values", "[reduce]") {
  auto lse = [](const std::vector<double>& v) {
    Array out(kFloat32, {1});
    TL_KERNEL(reduce, ReduceOp::logsumexp, out, Array::of(kFloat32, {static_cast<std::int64_t>(v.size())}, v), 1u, 0.0);
    return out[0];
  };
  REQUIRE(lse(std::vector<double>(40, -kInfinity)) == -kInfinity);
  REQUIRE(lse({-kInfinity, 3, -kInfinity}) == Approx(3));
  REQUIRE(lse({kInfinity, 3}) == kInfinity);
  REQUIRE(std::isnan(lse({kNaN, kInfinity})));
  REQUIRE(lse({10000, 10000}) == Approx(10000.6931472));
  std::vector<double> long_row(300000, -kInfinity);
  REQUIRE(lse(long_row) == -kInfinity);
  long_row[299999] = 7;
  REQUIRE(lse(long_row) == Approx(7));
}

TEST_CASE("var does not cancel, in one chunk and over many", "[reduce]") {
  for (std::int64_t n : {4, 1000, 300000})
    for (std::int64_t width : {1, 3, 40}) {
      Array in(kFloat32, {n, width});
      for (std::int64_t i = 0; i < in.numel(); ++i) in.set(i, 1e6 + static_cast<double>(i / width % 4));
      Array out(kFloat32, {1, width});
      TL_KERNEL(reduce, ReduceOp::var, out, in, 1u, 0.0);
      for (std::int64_t j = 0; j < width; ++j) REQUIRE(out[j] == Approx(1.25).epsilon(1e-5));
    }
}

TEST_CASE("var of a NaN or an infinity is NaN", "[reduce]") {
  for (double bad : {kNaN, kInfinity}) {
    Array in = Array::random(kFloat32, {100, 3}, 6), out(kFloat32, {1, 3});
    in.set(150, bad);
    TL_KERNEL(reduce, ReduceOp::var, out, in, 1u, 1.0);
    REQUIRE((std::isnan(out[0]) && !std::isnan(out[1]) && !std::isnan(out[2])));
  }
}

TEST_CASE("reduce gives the same bits for 1 and 2 threads", "[reduce]") {
  const Dims shapes[] = {{1000000}, {200000, 5}, {5, 200000}, {1000, 1000}, {30, 200, 100}};
  for (const Dims& sizes : shapes)
    for (std::uint32_t axes = 1; axes < 1u << sizes.size(); ++axes)
      for (ReduceOp op : {ReduceOp::sum, ReduceOp::var, ReduceOp::logsumexp}) {
        const Array in = Array::random(kFloat32, sizes, 5);
        require_same_bits([&] {
          Array out(kFloat32, reduced_sizes(sizes, axes));
          TL_KERNEL(reduce, op, out, in, axes, 1.0);
          return out;
        });
      }
}

namespace {

/// Calls f(values along `axis` in order, row-major index of the line among all lines) for every line.
template <class F> void for_each_line(const Array& in, int axis, F&& f) {
  std::int64_t inner = 1, n = in.sizes()[axis];
  for (int i = axis + 1; i < in.sizes().size(); ++i) inner *= in.sizes()[i];
  for (std::int64_t line = 0; line < in.numel() / n; ++line) {
    std::vector<double> values;
    for (std::int64_t k = 0; k < n; ++k) values.push_back(in[(line / inner * n + k) * inner + line % inner]);
    f(values, line);
  }
}

std::int64_t naive_arg(ArgOp op, const std::vector<double>& v) {
  std::size_t best = 0;
  for (std::size_t i = 0; i < v.size(); ++i) {
    if (std::isnan(v[i])) return static_cast<std::int64_t>(i);
    if (op == ArgOp::argmax ? v[i] > v[best] : v[i] < v[best]) best = i;
  }
  return static_cast<std::int64_t>(best);
}

void check_arg(const Array& in, int axis) {
  for (ArgOp op : {ArgOp::argmax, ArgOp::argmin}) {
    Array out(kInt64, reduced_sizes(in.sizes(), 1u << axis));
    out.fill(-5);
    TL_KERNEL(arg_reduce, op, out, in, axis);
    INFO("sizes " << tensorlite::detail::concat(in.sizes()) << " strides " << tensorlite::detail::concat(in.view().strides) << " axis "
                  << axis);
    for_each_line(in, axis, [&](const std::vector<double>& values, std::int64_t line) {
      if (out[line] != static_cast<double>(naive_arg(op, values))) REQUIRE(out[line] == static_cast<double>(naive_arg(op, values)));
    });
  }
  SUCCEED();
}

}  // namespace

TEST_CASE("arg_reduce agrees with loops; ties go to the first", "[reduce]") {
  for (DType dtype : {kFloat32, kFloat64, kFloat16, kInt32, kUInt8})
    for (Layout layout : kLayouts)
      for (const Dims& sizes : {Dims{9}, Dims{5, 3}, Dims{40, 7}, Dims{3, 40, 5}, Dims{2, 3, 70}, Dims{600, 5}, Dims{10000, 2}})
        for (int axis = 0; axis < sizes.size(); ++axis) {
          Array in = Array::random(dtype, sizes, 7, layout);
          for (std::int64_t i = 0; i < in.numel(); ++i) in.set(i, std::round(in[i]));
          check_arg(in, axis);
        }
  check_arg(Array::random(kFloat32, {300000}, 8), 0);
  check_arg(Array::random(kFloat32, {70000, 3}, 8), 0);
  check_arg(Array::random(kFloat32, {3, 70000}, 8), 1);
}

TEST_CASE("A15: argmax and argmin of NaN", "[reduce][A15]") {
  check_arg(Array::of(kFloat32, {5}, {2, 7, kNaN, 9, kNaN}), 0);
  for (const Dims& sizes : {Dims{61}, Dims{61, 5}, Dims{200000}, Dims{5000, 20}}) {
    Array in(kFloat32, sizes);
    in.fill(kNaN);
    check_arg(in, 0);
    in.fill(1);
    in.set(in.numel() - 1, kNaN);
    check_arg(in, 0);
    in.fill(-kInfinity);
    check_arg(in, 0);
  }
  Array out(kInt64, {1, 4});
  REQUIRE_THROWS_AS([&] { TL_KERNEL(arg_reduce, ArgOp::argmax, out, Array(kFloat32, {0, 4}), 0); }(), ValueError);
  TL_KERNEL(arg_reduce, ArgOp::argmax, Array(kInt64, {0, 1}), Array(kFloat32, {0, 4}), 1);
}

TEST_CASE("cumsum agrees with loops", "[reduce]") {
  for (DType dtype : {kFloat32, kFloat64, kFloat16, kInt32, kBool})
    for (Layout layout : kLayouts)
      for (const Dims& sizes : {Dims{9}, Dims{5, 3}, Dims{3, 40, 5}, Dims{2, 300, 300}})
        for (int axis = 0; axis < sizes.size(); ++axis) {
          const Array in = Array::random(dtype, sizes, 9, layout, 0.1);
          Array out(is_floating(dtype) ? dtype : kInt64, sizes);
          TL_KERNEL(cumsum, out, in, axis);
          std::vector<std::vector<double>> got;
          for_each_line(out, axis, [&](const std::vector<double>& values, std::int64_t) { got.push_back(values); });
          for_each_line(in, axis, [&](const std::vector<double>& values, std::int64_t line) {
            double sum = 0;
            for (std::size_t i = 0; i < values.size(); ++i) {
              const double value = got[static_cast<std::size_t>(line)][i];
              if (!close(value, sum += values[i], tolerance(dtype))) REQUIRE(value == sum);
            }
          });
        }
  SUCCEED();
}
