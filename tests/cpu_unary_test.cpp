// unary and unary_backward of the CPU against the standard library in long double.
#include "kernel_test.hpp"

using namespace kernel_test;

namespace {

using Real = long double;
constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();

Real sigmoid(Real x) { return 1 / (1 + std::exp(-x)); }
Real softplus(Real x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }
/// a * b where a factor of 0 wins over infinity.
Real product(Real a, Real b) { return b == 0 ? std::copysign(b, a) : a * b; }

/// The op by its definition.
Real reference(UnaryOp op, Real x, UnaryParams p) {
  const Real a = p.a, b = p.b, selu_scale = 1.05070098735548049341933498529L, selu_alpha = 1.67326324235437728481704242994L;
  switch (op) {
    case UnaryOp::Neg: return -x;
    case UnaryOp::Abs: return std::fabs(x);
    case UnaryOp::Sign: return std::isnan(x) ? x : (x > 0) - (x < 0);
    case UnaryOp::Reciprocal: return 1 / x;
    case UnaryOp::Square: return x * x;
    case UnaryOp::Sqrt: return std::sqrt(x);
    case UnaryOp::Rsqrt: return 1 / std::sqrt(x);
    case UnaryOp::Exp: return std::exp(x);
    case UnaryOp::Expm1: return std::expm1(x);
    case UnaryOp::Exp2: return std::exp2(x);
    case UnaryOp::Log: return std::log(x);
    case UnaryOp::Log1p: return std::log1p(x);
    case UnaryOp::Log2: return std::log2(x);
    case UnaryOp::Log10: return std::log10(x);
    case UnaryOp::Sin: return std::sin(x);
    case UnaryOp::Cos: return std::cos(x);
    case UnaryOp::Tan: return std::tan(x);
    case UnaryOp::Asin: return std::asin(x);
    case UnaryOp::Acos: return std::acos(x);
    case UnaryOp::Atan: return std::atan(x);
    case UnaryOp::Sinh: return std::sinh(x);
    case UnaryOp::Cosh: return std::cosh(x);
    case UnaryOp::Tanh: return std::tanh(x);
    case UnaryOp::Asinh: return std::asinh(x);
    case UnaryOp::Acosh: return std::acosh(x);
    case UnaryOp::Atanh: return std::atanh(x);
    case UnaryOp::Erf: return std::erf(x);
    case UnaryOp::Erfc: return std::erfc(x);
    case UnaryOp::Floor: return std::floor(x);
    case UnaryOp::Ceil: return std::ceil(x);
    case UnaryOp::Round: return std::rint(x);
    case UnaryOp::Trunc: return std::trunc(x);
    case UnaryOp::Relu: return x <= 0 ? 0 : x;
    case UnaryOp::Relu6: return x <= 0 ? 0 : x >= 6 ? 6 : x;
    case UnaryOp::LeakyRelu: return x > 0 ? x : x * a;
    case UnaryOp::Elu: return x > 0 ? x : a * std::expm1(x);
    case UnaryOp::Selu: return selu_scale * (x > 0 ? x : selu_alpha * std::expm1(x));
    case UnaryOp::Gelu: return product(x, std::erfc(-x / std::sqrt(2.0L)) / 2);
    case UnaryOp::GeluTanh: return product(x, sigmoid(2 * std::sqrt(2 / 3.14159265358979323846264338328L) * (x + 0.044715L * x * x * x)));
    case UnaryOp::Silu: return product(x, sigmoid(x));
    case UnaryOp::Mish: {
      const Real e = std::exp(x), n = e * (e + 2);
      return x > 50 ? x : product(x, n / (n + 2));
    }
    case UnaryOp::Sigmoid: return sigmoid(x);
    case UnaryOp::LogSigmoid: return -softplus(-x);
    case UnaryOp::Softplus: return a * x > b ? x : softplus(a * x) / a;
    case UnaryOp::Softsign: return std::isinf(x) ? std::copysign(1, x) : x / (1 + std::fabs(x));
    case UnaryOp::HardSigmoid: return x <= -3 ? 0 : x >= 3 ? 1 : (x + 3) / 6;
    case UnaryOp::HardSwish: return x <= -3 ? 0 : x >= 3 ? x : x * (x + 3) / 6;
    case UnaryOp::Clamp: return x < a ? a : x > b ? b : x;
    case UnaryOp::IsNan: return std::isnan(x);
    case UnaryOp::IsInf: return std::isinf(x);
    case UnaryOp::IsFinite: return std::isfinite(x);
    case UnaryOp::LogicalNot: return x == 0;
  }
  return 0;
}

UnaryParams params_of(UnaryOp op) {
  switch (op) {
    case UnaryOp::LeakyRelu: return {.a = 0.01};
    case UnaryOp::Elu: return {.a = 1.5};
    case UnaryOp::Softplus: return {.a = 2, .b = 20};
    case UnaryOp::Clamp: return {.a = -1, .b = 2};
    default: return {};
  }
}

#define TL_LISTED(name, text) UnaryOp::name,
constexpr UnaryOp kUnaryOps[] = {TL_UNARY_OPS(TL_LISTED)};
#undef TL_LISTED

/// Ordinary values, and those at which formulas break.
std::vector<double> sample_values(DType dtype) {
  std::vector<double> values = {0.0,      -0.0, kInfinity, -kInfinity, kNaN, 1e-40, -1e-40, 1e-30, -1e-30, 1e30,   -1e30,
                                1,        -1,   0.5,       -0.5,       1.5,  2.5,   -1.5,   -2.5,  3,      -3,     6,
                                20,       -20,  88,        -88,        89,   -89,   104,    -104,  -150,   0.9999, -0.9999,
                                1 - 1e-7, 13.9, -13.9,     -5.5,       -9.3, 710,   -740,   1e5,   -1e5,   1e-4,   -1e-4};
  std::mt19937 engine(7);
  std::uniform_real_distribution<double> near(-4, 4), far(-60, 60), unit(-1, 1);
  for (int i = 0; i < 300; ++i) values.insert(values.end(), {near(engine), far(engine), unit(engine)});
  Array rounded(dtype, {static_cast<std::int64_t>(values.size())});
  for (std::size_t i = 0; i < values.size(); ++i) {
    rounded.set(static_cast<std::int64_t>(i), values[i]);
    values[i] = rounded[static_cast<std::int64_t>(i)];
  }
  return values;
}

/// Units in the last place of dtype between got and expected; 0 for equal infinities, NaNs and zeros.
double ulps(DType dtype, double x, double got, Real expected) {
  Array rounded(dtype, {1});
  rounded.set(0, static_cast<double>(expected));
  if (std::isnan(got) || std::isnan(expected)) return std::isnan(got) && std::isnan(expected) ? 0 : kInfinity;
  if (std::isinf(got) || std::isinf(rounded[0])) return got == rounded[0] ? 0 : kInfinity;
  if (expected == 0) return got == 0 ? 0 : kInfinity;
  const int digits = dtype == kFloat64 ? 53 : dtype == kFloat32 ? 24 : dtype == kFloat16 ? 11 : 8;
  const int lowest = dtype == kFloat64 ? -1074 : dtype == kFloat16 ? -24 : dtype == kFloat32 ? -149 : -133;
  const int exponent = std::max(std::ilogb(expected) - digits + 1, lowest);
  if (std::fabs(got - expected) <= std::fabs(x) * std::ldexp(1.0L, lowest)) return 0;  // x times a subnormal number
  return static_cast<double>(std::fabs(got - expected) / std::ldexp(1.0L, exponent));
}

/// exp amplifies the rounding of its argument, here the result of four roundings, by its size; in float32 gelu corrects that.
double allowed_ulps(UnaryOp op, DType dtype, double x) {
  switch (op) {
    case UnaryOp::Gelu: return dtype == kFloat64 ? 8 + 2 * x * x : 8;
    case UnaryOp::GeluTanh: return 8 + 2 * 1.6 * std::abs(x) * (1 + 0.045 * x * x);
    default: return 5;
  }
}

}  // namespace

TEST_CASE("unary gives the values of its definition over the whole range", "[cpu]") {
  const DType dtype = GENERATE(kFloat32, kFloat64, kFloat16, kBFloat16);
  const std::vector<double> values = sample_values(dtype);
  const Array in = Array::of(dtype, {static_cast<std::int64_t>(values.size())}, values);
  for (const UnaryOp op : kUnaryOps) {
    Array out(gives_bool(op) ? kBool : dtype, in.sizes());
    TL_KERNEL(unary, op, out, in, params_of(op));
    for (std::int64_t i = 0; i < in.numel(); ++i) {
      const Real expected = reference(op, in[i], params_of(op));
      if (dtype == kFloat64 && std::fabs(expected) < 1e-290L && expected != 0)
        continue;  // long double's own exp(x) meets a double's subnormal
      const double distance = ulps(gives_bool(op) ? kUInt8 : dtype, in[i], out[i], expected);
      if (distance > (is_half(dtype) ? 1 : allowed_ulps(op, dtype, in[i]))) {
        INFO(name_of(op) << " of " << name_of(dtype) << " " << in[i] << ": " << distance << " ulp");
        CHECK(out[i] == static_cast<double>(expected));
      }
    }
  }
  SUCCEED();
}

TEST_CASE("unary_backward multiplies by the derivative", "[cpu]") {
  const DType dtype = GENERATE(kFloat32, kFloat64, kBFloat16);
  std::vector<double> values;
  for (int i = 0; i < 61; ++i) values.push_back(-7.0625 + 0.25 * i);  // exact in every dtype, off all kinks
  for (int i = 0; i < 20; ++i) values.push_back(-0.9453125 + 0.09375 * i);
  for (int i = 0; i < 10; ++i) values.push_back(1.0625 + 0.125 * i);
  const Array in = Array::of(dtype, {static_cast<std::int64_t>(values.size())}, values);
  Array grad_out(dtype, in.sizes());
  grad_out.fill(-2);
  for (const UnaryOp op : kUnaryOps) {
    if (gives_bool(op)) continue;
    const UnaryParams params = params_of(op);
    Array result(dtype, in.sizes()), grad_in(dtype, in.sizes());
    TL_KERNEL(unary, op, result, in, params);
    TL_KERNEL(unary_backward, op, grad_in, grad_out, derivative_uses_input(op) ? in.view() : View(),
              derivative_uses_result(op) ? result.view() : View(), params);
    for (std::int64_t i = 0; i < in.numel(); ++i) {
      const Real x = in[i], h = 1e-7L, above = reference(op, x + h, params), below = reference(op, x - h, params);
      if (std::isnan(above) || std::isnan(below)) continue;
      const double expected = static_cast<double>(-(above - below) / h);
      const double tolerance = dtype == kFloat64 ? 1e-9 : dtype == kFloat32 ? 4e-6 : 3e-2;
      INFO(name_of(op) << " at " << in[i]);
      if (std::abs(expected) < 1e6 && !close(grad_in[i], expected, tolerance)) CHECK(grad_in[i] == expected);
    }
  }
  SUCCEED();
}

TEST_CASE("gradients in the tails are their limits, not NaN", "[cpu]") {
  const DType dtype = GENERATE(kFloat32, kFloat64);
  const UnaryOp op = GENERATE(UnaryOp::Gelu, UnaryOp::GeluTanh, UnaryOp::Silu, UnaryOp::Mish, UnaryOp::HardSwish, UnaryOp::Softplus,
                              UnaryOp::Relu, UnaryOp::Elu, UnaryOp::Selu);
  const Array in = Array::of(dtype, {6}, {-kInfinity, -1e30, -2000, 2000, 1e30, kInfinity});
  Array result(dtype, {6}), grad_out(dtype, {6}), grad_in(dtype, {6});
  grad_out.fill(1);
  TL_KERNEL(unary, op, result, in, params_of(op));
  TL_KERNEL(unary_backward, op, grad_in, grad_out, in, result, params_of(op));
  const double slope = op == UnaryOp::Selu ? 1.0507009873554805 : 1;
  INFO(name_of(op));
  require_close(grad_in, {0, 0, 0, slope, slope, slope}, 1e-6);
}

TEST_CASE("a derivative at a kink is the documented one", "[cpu]") {
  struct Row {
    UnaryOp op;
    double x, expected;
  };
  const Row row = GENERATE(Row{UnaryOp::Relu, 0, 0}, Row{UnaryOp::Abs, 0, 0}, Row{UnaryOp::Clamp, -1, 1}, Row{UnaryOp::Clamp, 2, 1},
                           Row{UnaryOp::Relu6, 6, 0}, Row{UnaryOp::HardSwish, 3, 1}, Row{UnaryOp::LeakyRelu, 0, 0.01});
  const Array in = Array::of(kFloat32, {1}, {row.x}), grad_out = Array::of(kFloat32, {1}, {1});
  Array result(kFloat32, {1}), grad_in(kFloat32, {1});
  TL_KERNEL(unary, row.op, result, in, params_of(row.op));
  TL_KERNEL(unary_backward, row.op, grad_in, grad_out, in, result, params_of(row.op));
  INFO(name_of(row.op) << " at " << row.x);
  REQUIRE(grad_in[0] == static_cast<double>(static_cast<float>(row.expected)));
}

TEST_CASE("a value does not depend on its place in a vector", "[cpu]") {
  const UnaryOp op = GENERATE(UnaryOp::Exp, UnaryOp::Tanh, UnaryOp::Gelu, UnaryOp::Sin, UnaryOp::Log1p, UnaryOp::Relu);
  const DType dtype = GENERATE(kFloat32, kFloat64, kFloat16);
  const Array all = Array::random(dtype, {70}, 3);
  Array expected(dtype, {70});
  for (std::int64_t i = 0; i < 70; ++i) {
    const View from(all.view().ptr<char>() + i * size_of(dtype), dtype, cpu_device(), {1}, {1});
    const View to(expected.view().ptr<char>() + i * size_of(dtype), dtype, cpu_device(), {1}, {1});
    TL_KERNEL(unary, op, to, from, UnaryParams{});
  }
  for (std::int64_t n = 0; n <= 70; ++n) {
    Array out(dtype, {70});
    const View from(all.view().data, dtype, cpu_device(), {n}, {1}), to(out.view().data, dtype, cpu_device(), {n}, {1});
    TL_KERNEL(unary, op, to, from, UnaryParams{});
    for (std::int64_t i = 0; i < 70; ++i)
      if (i < n ? !(out[i] == expected[i] || (std::isnan(out[i]) && std::isnan(expected[i]))) : out[i] != 0) {
        INFO(name_of(op) << " n " << n << " i " << i);
        CHECK(out[i] == expected[i]);
      }
  }
  SUCCEED();
}

TEST_CASE("unary takes every layout, in place too, the same with any number of threads", "[cpu]") {
  const Layout in_layout = GENERATE(from_range(std::begin(kLayouts), std::end(kLayouts)));
  const Layout out_layout = GENERATE(Layout::dense, Layout::reversed_axes, Layout::stepped, Layout::backwards);
  const DType dtype = GENERATE(kFloat32, kFloat16, kInt32);
  const Dims sizes = GENERATE(Dims{}, Dims{0, 3}, Dims{3, 5, 4}, Dims{2, 600}, Dims{601, 3}, Dims{2, 3, 2, 5, 2, 3, 2, 4});
  Array in = Array::random(dtype, sizes, 5, in_layout);
  const auto run = [&] {
    Array out(dtype, sizes, out_layout);
    TL_KERNEL(unary, UnaryOp::Square, out, in, UnaryParams{});
    return out;
  };
  const Array out = run();
  for (std::int64_t i = 0; i < in.numel(); ++i) REQUIRE(close(out[i], in[i] * in[i], tolerance(dtype)));
  require_same_bits(run);
  if (in_layout == Layout::broadcast) return;
  TL_KERNEL(unary, UnaryOp::Square, in, in, UnaryParams{});
  for (std::int64_t i = 0; i < in.numel(); ++i) REQUIRE(in[i] == out[i]);
}

TEST_CASE("a long unary op is the same with 1 and 2 threads", "[cpu]") {
  const DType dtype = GENERATE(kFloat32, kFloat64, kFloat16);
  const Array in = Array::random(dtype, {20011}, 6);
  require_same_bits([&] {
    Array out(dtype, in.sizes());
    TL_KERNEL(unary, UnaryOp::Gelu, out, in, UnaryParams{});
    return out;
  });
}

TEST_CASE("integers stay integers in unary ops, and others are refused", "[cpu]") {
  std::int64_t in[] = {(std::int64_t{1} << 53) + 1, -5, std::numeric_limits<std::int64_t>::min()}, out[3];
  const View from(in, kInt64, cpu_device(), {3}, {1}), to(out, kInt64, cpu_device(), {3}, {1});
  TL_KERNEL(unary, UnaryOp::Neg, to, from, UnaryParams{});
  REQUIRE(out[0] == -(std::int64_t{1} << 53) - 1);
  REQUIRE(out[2] == in[2]);
  TL_KERNEL(unary, UnaryOp::Abs, to, from, UnaryParams{});
  REQUIRE(out[0] == in[0]);
  REQUIRE(out[1] == 5);
  TL_KERNEL(unary, UnaryOp::Clamp, to, from, (UnaryParams{-3, kInfinity}));
  REQUIRE(out[0] == in[0]);
  REQUIRE(out[1] == -3);
  TL_KERNEL(unary, UnaryOp::Floor, to, from, UnaryParams{});
  REQUIRE(out[0] == in[0]);
  REQUIRE_THROWS_AS([&] { TL_KERNEL(unary, UnaryOp::Exp, to, from, UnaryParams{}); }(), DTypeError);
}
