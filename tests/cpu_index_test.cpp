// gather, scatter_add, index_select and index_add of the CPU against loops.
#include "kernel_test.hpp"

using namespace kernel_test;

namespace {

constexpr DType kAll[] = {kFloat32, kFloat64, kFloat16, kBFloat16, kInt32, kInt64, kUInt8, kBool};

/// Row-major position with the coordinate of one axis replaced, in a tensor of `sizes`; `i` is a position in `from_sizes`.
std::int64_t position(std::int64_t i, const Dims& from_sizes, const Dims& sizes, int axis, std::int64_t coordinate) {
  Dims at = Dims::filled(sizes.size(), 0);
  for (int d = sizes.size() - 1; d >= 0; --d) {
    at[d] = i % from_sizes[d];
    i /= from_sizes[d];
  }
  at[axis] = coordinate;
  std::int64_t result = 0;
  for (int d = 0; d < sizes.size(); ++d) result = result * sizes[d] + at[d];
  return result;
}
std::int64_t coordinate(std::int64_t i, const Dims& sizes, int axis) {
  for (int d = sizes.size() - 1; d > axis; --d) i /= sizes[d];
  return i % sizes[axis];
}

Array random_index(const Dims& sizes, std::int64_t size, unsigned seed, Layout layout = Layout::dense) {
  Array index(kInt64, sizes, layout);
  std::mt19937 engine(seed);
  std::uniform_int_distribution<std::int64_t> any(-size, size - 1);
  for (std::int64_t i = 0; i < index.numel(); ++i) index.set(i, static_cast<double>(any(engine)));
  return index;
}
std::int64_t wrapped(const Array& index, std::int64_t i, std::int64_t size) {
  const auto k = static_cast<std::int64_t>(index[i]);
  return k < 0 ? k + size : k;
}

Dims with_size(Dims sizes, int axis, std::int64_t size) {
  sizes[axis] = size;
  return sizes;
}

const Dims kShapes[] = {{7}, {5, 4}, {3, 5, 4}, {2, 3, 4, 5}};

}  // namespace

TEST_CASE("gather agrees with loops", "[index]") {
  for (DType dtype : kAll)
    for (Layout layout : kLayouts)
      for (const Dims& sizes : kShapes)
        for (int axis = 0; axis < sizes.size(); ++axis) {
          const Array in = Array::random(dtype, sizes, 1, layout);
          const Array index = random_index(with_size(sizes, axis, 6), sizes[axis], 2, layout);
          Array out(dtype, index.sizes());
          TL_KERNEL(gather, out, in, index, axis);
          std::vector<double> expected;
          for (std::int64_t i = 0; i < out.numel(); ++i)
            expected.push_back(in[position(i, out.sizes(), sizes, axis, wrapped(index, i, sizes[axis]))]);
          require_close(out, expected, 0);
        }
}

TEST_CASE("gather with an index smaller than the input on the other axes", "[index]") {
  const Array in = Array::random(kFloat32, {4, 6}, 1), index = random_index({2, 3}, 4, 2);
  Array out(kFloat32, {2, 3});
  TL_KERNEL(gather, out, in, index, 0);
  for (std::int64_t i = 0; i < 6; ++i) REQUIRE(out[i] == in[wrapped(index, i, 4) * 6 + i % 3]);
}

TEST_CASE("scatter_add agrees with loops", "[index]") {
  for (DType dtype : kAll)
    for (Layout layout : kLayouts)
      for (const Dims& sizes : kShapes)
        for (int axis = 0; axis < sizes.size(); ++axis) {
          const Array src = Array::random(dtype, with_size(sizes, axis, 6), 1, layout),
                      index = random_index(src.sizes(), sizes[axis], 2, layout);
          Array out = Array::random(dtype, sizes, 3);
          std::vector<double> expected;
          for (std::int64_t i = 0; i < out.numel(); ++i) expected.push_back(out[i]);
          for (std::int64_t i = 0; i < src.numel(); ++i) {
            double& sum = expected[static_cast<std::size_t>(position(i, src.sizes(), sizes, axis, wrapped(index, i, sizes[axis])))];
            sum = dtype == kBool ? sum || src[i] != 0 : sum + src[i];
          }
          TL_KERNEL(scatter_add, out, index, src, axis);
          require_close(out, expected, tolerance(dtype));
        }
}

TEST_CASE("index_select agrees with loops", "[index]") {
  for (DType dtype : kAll)
    for (Layout layout : kLayouts)
      for (const Dims& sizes : kShapes)
        for (int axis = 0; axis < sizes.size(); ++axis)
          for (std::int64_t n : {1, 6, 100}) {
            const Array in = Array::random(dtype, sizes, 1, layout), index = random_index({n}, sizes[axis], 2);
            Array out(dtype, with_size(sizes, axis, n));
            TL_KERNEL(index_select, out, in, index, axis);
            std::vector<double> expected;
            for (std::int64_t i = 0; i < out.numel(); ++i)
              expected.push_back(in[position(i, out.sizes(), sizes, axis, wrapped(index, coordinate(i, out.sizes(), axis), sizes[axis]))]);
            require_close(out, expected, 0);
          }
}

TEST_CASE("index_add agrees with loops", "[index]") {
  for (DType dtype : kAll)
    for (Layout layout : kLayouts)
      for (const Dims& sizes : kShapes)
        for (int axis = 0; axis < sizes.size(); ++axis)
          for (std::int64_t n : {1, 6, 30}) {
            const Array src = Array::random(dtype, with_size(sizes, axis, n), 1, layout), index = random_index({n}, sizes[axis], 2);
            Array out = Array::random(dtype, sizes, 3);
            std::vector<double> expected;
            for (std::int64_t i = 0; i < out.numel(); ++i) expected.push_back(out[i]);
            for (std::int64_t i = 0; i < src.numel(); ++i) {
              const std::int64_t k = wrapped(index, coordinate(i, src.sizes(), axis), sizes[axis]);
              double& sum = expected[static_cast<std::size_t>(position(i, src.sizes(), sizes, axis, k))];
              sum = dtype == kBool ? sum || src[i] != 0 : sum + src[i];
            }
            TL_KERNEL(index_add, out, index, src, axis);
            require_close(out, expected, tolerance(dtype));
          }
}

TEST_CASE("half sums of many terms are kept in float", "[index]") {
  Array out(kFloat16, {2, 1}), src(kFloat16, {4096, 1}), index(kInt64, {4096});
  out.fill(0);
  src.fill(0.25);
  index.fill(1);
  TL_KERNEL(index_add, out, index, src, 0);
  REQUIRE((out[0] == 0 && out[1] == 1024));
}

TEST_CASE("an index out of range throws before anything is written", "[index]") {
  for (double bad : {3.0, -4.0}) {
    const Array index = Array::of(kInt64, {2}, {0, bad}), index_2d = Array::of(kInt64, {2, 1}, {0, bad});
    const Array values = Array::of(kFloat32, {3, 1}, {1, 2, 3});
    Array out = Array::of(kFloat32, {3, 1}, {7, 7, 7}), pair = Array::of(kFloat32, {2, 1}, {7, 7});
    auto message = [&](auto call) -> std::string {
      try {
        call();
      } catch (const IndexError& error) { return error.what(); }
      return "nothing thrown";
    };
    const std::string texts[] = {
        message([&] { TL_KERNEL(gather, pair, values, index_2d, 0); }), message([&] { TL_KERNEL(index_select, pair, values, index, 0); }),
        message([&] { TL_KERNEL(scatter_add, out, index_2d, pair, 0); }), message([&] { TL_KERNEL(index_add, out, index, pair, 0); })};
    for (const std::string& text : texts) {
      INFO(text);
      CHECK(text.find(bad > 0 ? "index 3 " : "index -4 ") != std::string::npos);
      CHECK(text.find("axis 0 of size 3") != std::string::npos);
    }
    require_close(out, {7, 7, 7}, 0);
    require_close(pair, {7, 7}, 0);
  }
}

TEST_CASE("indexing of empty tensors", "[index]") {
  const Array none(kInt64, {0}), in(kFloat32, {3, 2}), empty(kFloat32, {0, 2});
  Array out = Array::of(kFloat32, {3, 2}, {1, 2, 3, 4, 5, 6});
  TL_KERNEL(index_select, empty, in, none, 0);
  TL_KERNEL(index_add, out, none, empty, 0);
  TL_KERNEL(scatter_add, out, Array(kInt64, {0, 2}), empty, 0);
  TL_KERNEL(gather, empty, in, Array(kInt64, {0, 2}), 0);
  require_close(out, {1, 2, 3, 4, 5, 6}, 0);
  REQUIRE_THROWS_AS([&] { TL_KERNEL(index_select, Array(kFloat32, {1, 2}), empty, Array::of(kInt64, {1}, {0}), 0); }(), IndexError);
}

TEST_CASE("sums by index give the same bits for 1 and 2 threads", "[index]") {
  for (std::int64_t width : {1, 16, 1000}) {
    const Array src = Array::random(kFloat32, {5000, width}, 1), index = random_index({5000}, 50, 2),
                each = random_index({5000, width}, 50, 3);
    require_same_bits([&] {
      Array out(kFloat32, {50, width});
      TL_KERNEL(index_add, out, index, src, 0);
      return out;
    });
    require_same_bits([&] {
      Array out(kFloat32, {50, width});
      TL_KERNEL(scatter_add, out, each, src, 0);
      return out;
    });
  }
}
