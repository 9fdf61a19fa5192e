// binary, binary_scalar, where, copy, fill and arange of the CPU.
#include "kernel_test.hpp"

using namespace kernel_test;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr DType kDTypes[] = {kFloat32, kFloat64, kFloat16, kBFloat16, kInt32, kInt64, kUInt8, kBool};

#define TL_LISTED(name, text) BinaryOp::name,
constexpr BinaryOp kBinaryOps[] = {TL_BINARY_OPS(TL_LISTED)};
#undef TL_LISTED

double python_remainder(double a, double b) {
  const double r = std::fmod(a, b);
  if (r == 0) return std::copysign(0.0, b);
  return (r < 0) != (b < 0) ? r + b : r;
}

double reference(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::Add: return a + b;
    case BinaryOp::Subtract: return a - b;
    case BinaryOp::Multiply: return a * b;
    case BinaryOp::Divide: return a / b;
    case BinaryOp::FloorDivide:
      if (b == 0) return a / b;
      if (!std::isfinite(a)) return kNaN;
      return std::isinf(b) && a != 0 && (a < 0) != (b < 0) ? -1 : std::floor(a / b);
    case BinaryOp::Remainder: return python_remainder(a, b);
    case BinaryOp::Power: return std::pow(a, b);
    case BinaryOp::Maximum: return std::isnan(a) || std::isnan(b) ? kNaN : std::max(a, b);
    case BinaryOp::Minimum: return std::isnan(a) || std::isnan(b) ? kNaN : std::min(a, b);
    case BinaryOp::Atan2: return std::atan2(a, b);
    case BinaryOp::Hypot: return std::hypot(a, b);
    case BinaryOp::SquaredDifference: return (a - b) * (a - b);
    case BinaryOp::Equal: return a == b;
    case BinaryOp::NotEqual: return a != b;
    case BinaryOp::Less: return a < b;
    case BinaryOp::LessEqual: return a <= b;
    case BinaryOp::Greater: return a > b;
    case BinaryOp::GreaterEqual: return a >= b;
    case BinaryOp::LogicalAnd: return a != 0 && b != 0;
    case BinaryOp::LogicalOr: return a != 0 || b != 0;
    case BinaryOp::LogicalXor: return (a != 0) != (b != 0);
    case BinaryOp::BitwiseAnd: return static_cast<double>(static_cast<std::int64_t>(a) & static_cast<std::int64_t>(b));
    case BinaryOp::BitwiseOr: return static_cast<double>(static_cast<std::int64_t>(a) | static_cast<std::int64_t>(b));
    case BinaryOp::BitwiseXor: return static_cast<double>(static_cast<std::int64_t>(a) ^ static_cast<std::int64_t>(b));
  }
  return 0;
}

/// A one-dimensional dense view of numbers that the test holds itself.
template <class T> View view_of(T* data, std::int64_t count) { return View(data, dtype_of<T>, cpu_device(), {count}, {1}); }

template <class T> std::vector<T> run_binary(BinaryOp op, std::vector<T> a, std::vector<T> b) {
  std::vector<T> out(a.size());
  const auto n = static_cast<std::int64_t>(a.size());
  TL_KERNEL(binary, op, view_of(out.data(), n), view_of(a.data(), n), view_of(b.data(), n));
  return out;
}

}  // namespace

TEST_CASE("binary gives the values of its definition for floating-point numbers", "[cpu]") {
  const DType dtype = GENERATE(kFloat32, kFloat64, kFloat16, kBFloat16);
  const std::vector<double> values = {0, 1, -1, 0.5, -2.5, 3, 7, -7, 100, -0.25, 1.5, kInfinity, -kInfinity, kNaN};
  const auto n = static_cast<std::int64_t>(values.size());
  Array a(dtype, {n, n}), b(dtype, {n, n});
  for (std::int64_t i = 0; i < n * n; ++i) {
    a.set(i, values[static_cast<std::size_t>(i / n)]);
    b.set(i, values[static_cast<std::size_t>(i % n)]);
  }
  for (const BinaryOp op : kBinaryOps) {
    Array out(gives_bool(op) ? kBool : dtype, a.sizes());
    if (!accepts_floats(op)) {
      CHECK_THROWS_AS([&] { TL_KERNEL(binary, op, out, a, b); }(), DTypeError);
      continue;
    }
    TL_KERNEL(binary, op, out, a, b);
    Array expected(gives_bool(op) ? kBool : dtype, a.sizes());
    for (std::int64_t i = 0; i < n * n; ++i) {
      expected.set(i, reference(op, a[i], b[i]));
      INFO(name_of(op) << " of " << a[i] << " and " << b[i]);
      if (!close(out[i], expected[i], tolerance(dtype) / 10)) CHECK(out[i] == expected[i]);
    }
  }
  SUCCEED();
}

TEST_CASE("binary gives the values of its definition for integers and bool", "[cpu]") {
  const DType dtype = GENERATE(kInt32, kInt64, kUInt8, kBool);
  std::vector<double> values = {0, 1, 2, 3, 5, 7, 11};
  if (dtype == kInt32 || dtype == kInt64) values.insert(values.end(), {-1, -2, -5, -7});
  const auto n = static_cast<std::int64_t>(values.size());
  Array a(dtype, {n, n}), b(dtype, {n, n});
  for (std::int64_t i = 0; i < n * n; ++i) {
    a.set(i, values[static_cast<std::size_t>(i / n)]);
    b.set(i, values[static_cast<std::size_t>(i % n)]);
  }
  for (const BinaryOp op : kBinaryOps) {
    Array out(gives_bool(op) ? kBool : dtype, a.sizes());
    if (!accepts_integers(op)) {
      CHECK_THROWS_AS([&] { TL_KERNEL(binary, op, out, a, b); }(), DTypeError);
      continue;
    }
    TL_KERNEL(binary, op, out, a, b);
    for (std::int64_t i = 0; i < n * n; ++i) {
      double expected = reference(op, a[i], b[i]);
      if ((op == BinaryOp::FloorDivide || op == BinaryOp::Remainder) && b[i] == 0) expected = 0;
      if (op == BinaryOp::Power && b[i] < 0) expected = std::trunc(a[i] == 0 ? 0 : expected);
      if (dtype == kUInt8) expected = static_cast<double>(static_cast<std::uint8_t>(static_cast<std::int64_t>(std::fmod(expected, 256))));
      if (dtype == kBool) expected = expected != 0;
      if (std::abs(expected) > 2e9) continue;  // wraps in int32
      INFO(name_of(op) << " of " << name_of(dtype) << " " << a[i] << " and " << b[i]);
      if (out[i] != expected) CHECK(out[i] == expected);
    }
  }
  SUCCEED();
}

TEST_CASE("integer arithmetic is exact, wraps around and survives a division by zero", "[cpu]") {
  const std::int64_t big = (std::int64_t{1} << 53) + 1, lowest = std::numeric_limits<std::int64_t>::min();
  using Longs = std::vector<std::int64_t>;
  CHECK(run_binary<std::int64_t>(BinaryOp::Add, {big, lowest}, {2, -1}) == Longs{big + 2, std::numeric_limits<std::int64_t>::max()});
  CHECK(run_binary<std::int64_t>(BinaryOp::FloorDivide, {lowest, 5, -5, big}, {-1, 0, 2, 1}) == Longs{lowest, 0, -3, big});
  CHECK(run_binary<std::int64_t>(BinaryOp::Remainder, {lowest, 5, -5, 5}, {-1, 0, 3, -3}) == Longs{0, 0, 1, -1});
  CHECK(run_binary<std::int64_t>(BinaryOp::Power, {3, -2, 2, -1, 7}, {39, 63, -1, -3, 0}) == Longs{4052555153018976267, lowest, 0, -1, 1});
  CHECK(run_binary<std::int32_t>(BinaryOp::FloorDivide, {std::numeric_limits<std::int32_t>::min(), 1}, {-1, 0}) ==
        std::vector<std::int32_t>{std::numeric_limits<std::int32_t>::min(), 0});
  CHECK(run_binary<std::uint8_t>(BinaryOp::Subtract, {3}, {5}) == std::vector<std::uint8_t>{254});
}

TEST_CASE("floating remainder and floor division follow Python at the corners", "[cpu]") {
  CHECK(run_binary<double>(BinaryOp::FloorDivide, {1.0, -1.0, 6, -0.5}, {0.1, 0.1, 0.1, 3}) == std::vector<double>{9, -10, 59, -1});
  const auto zeros = run_binary<float>(BinaryOp::Remainder, {6, -6}, {-3, 3});
  CHECK((zeros[0] == 0 && std::signbit(zeros[0]) && zeros[1] == 0 && !std::signbit(zeros[1])));
}

TEST_CASE("binary takes every pair of layouts, in place too, the same with any number of threads", "[cpu]") {
  const Layout a_layout = GENERATE(from_range(std::begin(kLayouts), std::end(kLayouts)));
  const Layout b_layout = GENERATE(from_range(std::begin(kLayouts), std::end(kLayouts)));
  const Layout out_layout = GENERATE(Layout::dense, Layout::reversed_axes, Layout::stepped, Layout::backwards);
  const DType dtype = GENERATE(kFloat32, kBFloat16, kInt64, kBool);
  const Dims sizes = GENERATE(Dims{}, Dims{2, 0}, Dims{4, 5, 3}, Dims{3, 520}, Dims{521, 3});
  Array a = Array::random(dtype, sizes, 1, a_layout);
  const Array b = Array::random(dtype, sizes, 2, b_layout);
  const auto run = [&] {
    Array out(dtype, sizes, out_layout);
    TL_KERNEL(binary, BinaryOp::Multiply, out, a, b);
    return out;
  };
  const Array out = run();
  Array expected(dtype, sizes);
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    expected.set(i, a[i] * b[i]);
    REQUIRE(out[i] == expected[i]);
  }
  require_same_bits(run);
  if (a_layout == Layout::broadcast) return;
  TL_KERNEL(binary, BinaryOp::Multiply, a, a, b);
  for (std::int64_t i = 0; i < out.numel(); ++i) REQUIRE(a[i] == out[i]);
}

TEST_CASE("every size from 0 to 70 is computed whole and no further", "[cpu]") {
  for (std::int64_t n = 0; n <= 70; ++n) {
    std::vector<float> a(72), b(72), out(72, 99);
    for (std::size_t i = 0; i < 72; ++i) a[i] = static_cast<float>(i), b[i] = 0.5f;
    TL_KERNEL(binary, BinaryOp::Add, view_of(out.data() + 1, n), view_of(a.data(), n), view_of(b.data(), n));
    for (std::int64_t i = 0; i < n; ++i) REQUIRE(out[static_cast<std::size_t>(i + 1)] == static_cast<float>(i) + 0.5f);
    REQUIRE(out[0] == 99);
    REQUIRE(out[static_cast<std::size_t>(n + 1)] == 99);
  }
}

TEST_CASE("binary_scalar puts the scalar on its side", "[cpu]") {
  const DType dtype = GENERATE(kFloat32, kFloat64, kFloat16, kInt32, kInt64);
  const Layout layout = GENERATE(Layout::dense, Layout::stepped, Layout::reversed_axes);
  const Array a = Array::random(dtype, {3, 50}, 4, layout);
  Array right(dtype, a.sizes()), left(dtype, a.sizes()), less(kBool, a.sizes());
  TL_KERNEL(binary_scalar, BinaryOp::Subtract, right, a, Scalar(2), ScalarSide::right);
  TL_KERNEL(binary_scalar, BinaryOp::Subtract, left, a, Scalar(2), ScalarSide::left);
  TL_KERNEL(binary_scalar, BinaryOp::Less, less, a, Scalar(1), ScalarSide::left);
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    REQUIRE(close(right[i], a[i] - 2, tolerance(dtype)));
    REQUIRE(close(left[i], 2 - a[i], tolerance(dtype)));
    REQUIRE(less[i] == (1 < a[i]));
  }
  std::int64_t big[] = {(std::int64_t{1} << 53) + 1};
  TL_KERNEL(binary_scalar, BinaryOp::Add, view_of(big, 1), view_of(big, 1), Scalar((std::int64_t{1} << 53) + 2), ScalarSide::right);
  REQUIRE(big[0] == (std::int64_t{1} << 54) + 3);
}

TEST_CASE("a square by power is exact, and other powers are the library's", "[cpu]") {
  const Array a = Array::of(kFloat32, {4}, {-3, 0.1, kInfinity, kNaN});
  Array out(kFloat32, {4});
  TL_KERNEL(binary_scalar, BinaryOp::Power, out, a, Scalar(2), ScalarSide::right);
  require_close(out, {9, static_cast<double>(0.1f * 0.1f), kInfinity, kNaN}, 0);
  TL_KERNEL(binary_scalar, BinaryOp::Power, out, a, Scalar(2), ScalarSide::left);
  require_close(out, {0.125, std::pow(2, static_cast<double>(0.1f)), kInfinity, kNaN}, 1e-7);
}

TEST_CASE("where selects element by element for every dtype and layout", "[cpu]") {
  const DType dtype = GENERATE(from_range(std::begin(kDTypes), std::end(kDTypes)));
  const Layout layout = GENERATE(from_range(std::begin(kLayouts), std::end(kLayouts)));
  const Dims sizes = {5, 4, 30};
  const Array condition = Array::random(kBool, sizes, 1, layout), a = Array::random(dtype, sizes, 2),
              b = Array::random(dtype, sizes, 3, layout);
  Array out(dtype, sizes);
  TL_KERNEL(where, out, condition, a, b);
  for (std::int64_t i = 0; i < out.numel(); ++i) REQUIRE(out[i] == (condition[i] != 0 ? a[i] : b[i]));
}

TEST_CASE("copy converts between all dtypes and layouts", "[cpu]") {
  const DType from = GENERATE(from_range(std::begin(kDTypes), std::end(kDTypes)));
  const DType to = GENERATE(from_range(std::begin(kDTypes), std::end(kDTypes)));
  const Layout in_layout = GENERATE(from_range(std::begin(kLayouts), std::end(kLayouts)));
  const Layout out_layout = GENERATE(Layout::dense, Layout::reversed_axes, Layout::backwards);
  const Array in = Array::random(from, {7, 6, 40}, 9, in_layout);
  Array out(to, in.sizes(), out_layout), expected(to, {1});
  TL_KERNEL(copy, out, in);
  for (std::int64_t i = 0; i < in.numel(); ++i) {
    expected.set(0, to == kUInt8 && in[i] < 0 ? 0 : in[i]);
    REQUIRE(out[i] == expected[0]);
  }
}

TEST_CASE("conversion to integers cuts, saturates and makes NaN 0; to bool asks for nonzero", "[cpu]") {
  const Array in = Array::of(kFloat32, {8}, {1.9, -1.9, 300, -300, 1e20, -1e20, kNaN, 0.25});
  Array bytes(kUInt8, {8}), ints(kInt32, {8}), truths(kBool, {8});
  TL_KERNEL(copy, bytes, in);
  require_close(bytes, {1, 0, 255, 0, 255, 0, 0, 0}, 0);
  TL_KERNEL(copy, ints, in);
  require_close(ints, {1, -1, 300, -300, 2147483647, -2147483648.0, 0, 0}, 0);
  TL_KERNEL(copy, truths, in);
  require_close(truths, {1, 1, 1, 1, 1, 1, 1, 1}, 0);
  std::int64_t longs[] = {256, (std::int64_t{1} << 53) + 1}, same[2];
  bool truth[2];
  TL_KERNEL(copy, view_of(truth, 2), view_of(longs, 2));
  REQUIRE((truth[0] && truth[1]));
  TL_KERNEL(copy, view_of(same, 2), view_of(longs, 2));
  REQUIRE(same[1] == longs[1]);
}

TEST_CASE("half types convert with rounding to even, infinity and NaN kept", "[cpu]") {
  const std::vector<double> values = {65519, 65520, 1e-8, 6e-8, 1 + 0x1p-11, 1 + 3 * 0x1p-11, kInfinity, -kInfinity, kNaN, -0.0, 3e38};
  const auto n = static_cast<std::int64_t>(values.size());
  const Array in = Array::of(kFloat32, {n}, values);
  for (const DType half : {kFloat16, kBFloat16}) {
    Array out(half, {n}), back(kFloat32, {n}), expected = Array::of(half, {n}, values);
    TL_KERNEL(copy, out, in);
    TL_KERNEL(copy, back, out);
    for (std::int64_t i = 0; i < n; ++i) {
      REQUIRE(close(out[i], expected[i], 0));
      REQUIRE(close(back[i], out[i], 0));
    }
  }
}

TEST_CASE("transposed copies move every element of every size", "[cpu]") {
  const DType dtype = GENERATE(kFloat32, kFloat64, kBFloat16, kUInt8);
  const std::int64_t rows = GENERATE(1, 3, 4, 16, 33, 70), columns = GENERATE(1, 2, 5, 16, 31, 64, 129);
  const std::int64_t planes = GENERATE(1, 3);
  Array in(dtype, {planes, rows, columns});
  for (std::int64_t i = 0; i < in.numel(); ++i) in.set(i, static_cast<double>(i % 199));
  const std::int64_t size = size_of(dtype);
  const View turned(in.view().data, dtype, cpu_device(), {planes, columns, rows}, {rows * columns, 1, columns});
  Array guarded(dtype, {planes * rows * columns + 2});
  guarded.fill(77);
  const View out(guarded.view().ptr<char>() + size, dtype, cpu_device(), turned.sizes, contiguous_strides(turned.sizes));
  const auto check = [&] {
    TL_KERNEL(copy, out, turned);
    for (std::int64_t p = 0; p < planes; ++p)
      for (std::int64_t c = 0; c < columns; ++c)
        for (std::int64_t r = 0; r < rows; ++r)
          if (guarded[1 + (p * columns + c) * rows + r] != in[(p * rows + r) * columns + c]) FAIL("row " << r << " column " << c);
    REQUIRE(guarded[0] == 77);
    REQUIRE(guarded[guarded.numel() - 1] == 77);
  };
  check();
  config::set_num_threads(2);
  check();
  config::set_num_threads(0);
}

TEST_CASE("fill and arange", "[cpu]") {
  const DType dtype = GENERATE(from_range(std::begin(kDTypes), std::end(kDTypes)));
  const Layout layout = GENERATE(Layout::dense, Layout::stepped, Layout::backwards, Layout::reversed_axes);
  Array out(dtype, {3, 700}, layout);
  TL_KERNEL(fill, out, Scalar(1));
  for (std::int64_t i = 0; i < out.numel(); ++i) REQUIRE(out[i] == 1);
  if (dtype == kBool) return;
  Array range(dtype, {20});
  TL_KERNEL(arange, range, Scalar(2), Scalar(3));
  for (std::int64_t i = 0; i < 20; ++i) REQUIRE(range[i] == static_cast<double>(2 + 3 * i));
}

TEST_CASE("arange does not add up rounding errors, and long integers stay exact", "[cpu]") {
  Array range(kFloat32, {100001});
  TL_KERNEL(arange, range, Scalar(0.0), Scalar(0.1));
  REQUIRE(range[100000] == static_cast<double>(static_cast<float>(10000.0)));
  std::int64_t longs[3];
  TL_KERNEL(arange, view_of(longs, 3), Scalar((std::int64_t{1} << 60) + 1), Scalar(-2));
  REQUIRE(longs[2] == (std::int64_t{1} << 60) - 3);
  std::int64_t filled[1];
  TL_KERNEL(fill, view_of(filled, 1), Scalar((std::int64_t{1} << 60) + 1));
  REQUIRE(filled[0] == (std::int64_t{1} << 60) + 1);
}
