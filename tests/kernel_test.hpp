// For tests that call a CPU kernel directly: arrays of any dtype and layout, read and written as double.
#pragma once

#include "catch.hpp"

#include <tensorlite/backend.hpp>
#include <tensorlite/device.hpp>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

namespace kernel_test {

using namespace tensorlite;

#define TL_KERNEL(name, ...) TL_CALL((::tensorlite::detail::OpPlace{"Test", ::tensorlite::cpu_device()}), name, __VA_ARGS__)

inline double load(DType dtype, const void* data, std::int64_t i) {
  switch (dtype) {
    case DType::float32: return static_cast<const float*>(data)[i];
    case DType::float64: return static_cast<const double*>(data)[i];
    case DType::float16: return static_cast<const float16*>(data)[i];
    case DType::bfloat16: return static_cast<const bfloat16*>(data)[i];
    case DType::int32: return static_cast<const std::int32_t*>(data)[i];
    case DType::int64: return static_cast<double>(static_cast<const std::int64_t*>(data)[i]);
    case DType::uint8: return static_cast<const std::uint8_t*>(data)[i];
    default: return static_cast<const bool*>(data)[i];
  }
}
inline void store(DType dtype, void* data, std::int64_t i, double value) {
  switch (dtype) {
    case DType::float32: static_cast<float*>(data)[i] = static_cast<float>(value); break;
    case DType::float64: static_cast<double*>(data)[i] = value; break;
    case DType::float16: static_cast<float16*>(data)[i] = float16(static_cast<float>(value)); break;
    case DType::bfloat16: static_cast<bfloat16*>(data)[i] = bfloat16(static_cast<float>(value)); break;
    case DType::int32: static_cast<std::int32_t*>(data)[i] = static_cast<std::int32_t>(value); break;
    case DType::int64: static_cast<std::int64_t*>(data)[i] = static_cast<std::int64_t>(value); break;
    case DType::uint8: static_cast<std::uint8_t*>(data)[i] = static_cast<std::uint8_t>(value); break;
    default: static_cast<bool*>(data)[i] = value != 0;
  }
}

enum class Layout { dense, reversed_axes, stepped, backwards, broadcast };
inline constexpr Layout kLayouts[] = {Layout::dense, Layout::reversed_axes, Layout::stepped, Layout::backwards, Layout::broadcast};

/// Owns its bytes; elements are addressed by their row-major index whatever the layout.
class Array {
 public:
  Array() = default;
  Array(DType dtype, const Dims& sizes, Layout layout = Layout::dense)
      : view_(nullptr, dtype, cpu_device(), sizes, contiguous_strides(sizes)) {
    std::int64_t elements = sizes.product(), first = 0;
    Dims& strides = view_.strides;
    const int last = sizes.size() - 1;
    if (layout == Layout::reversed_axes) {
      std::int64_t stride = 1;
      for (int i = 0; i <= last; ++i) strides[i] = stride, stride *= sizes[i];
    } else if (layout == Layout::stepped) {
      for (auto& s : strides) s *= 2;
      elements *= 2;
    } else if (layout == Layout::backwards && last >= 0 && elements > 0) {
      for (int i = 0; i <= last; ++i) first += (sizes[i] - 1) * strides[i], strides[i] = -strides[i];
    } else if (layout == Layout::broadcast && last >= 0) {
      strides[last / 2] = 0;
    }
    bytes_.resize(static_cast<std::size_t>((elements + 1) * size_of(dtype)));
    view_.data = bytes_.data() + first * size_of(dtype);
  }
  Array(const Array&) = delete;
  Array(Array&&) = default;
  Array& operator=(Array&&) = default;

  static Array of(DType dtype, const Dims& sizes, const std::vector<double>& values) {
    Array a(dtype, sizes);
    for (std::int64_t i = 0; i < a.numel(); ++i) a.set(i, values[static_cast<std::size_t>(i)]);
    return a;
  }
  /// Standard normal times `scale`, rounded for integers; the same for the same seed.
  static Array random(DType dtype, const Dims& sizes, unsigned seed, Layout layout = Layout::dense, double scale = 1) {
    Array a(dtype, sizes, layout);
    std::mt19937 engine(seed);
    std::normal_distribution<double> normal;
    for (std::int64_t i = 0; i < a.numel(); ++i)
      a.set(i, is_floating(dtype) ? normal(engine) * scale : std::abs(std::round(3 * normal(engine))));
    return a;
  }

  operator const View&() const { return view_; }
  const View& view() const { return view_; }
  std::int64_t numel() const { return view_.numel(); }
  const Dims& sizes() const { return view_.sizes; }
  double operator[](std::int64_t i) const { return load(view_.dtype, view_.data, offset(i)); }
  void set(std::int64_t i, double value) { store(view_.dtype, view_.data, offset(i), value); }
  void fill(double value) {
    for (std::int64_t i = 0; i < numel(); ++i) set(i, value);
  }
  bool same_bits(const Array& other) const { return bytes_ == other.bytes_; }

 private:
  std::int64_t offset(std::int64_t i) const {
    std::int64_t at = 0;
    for (int axis = view_.dim() - 1; axis >= 0; --axis) {
      at += i % view_.sizes[axis] * view_.strides[axis];
      i /= view_.sizes[axis];
    }
    return at;
  }
  View view_;
  std::vector<unsigned char> bytes_;
};

/// Both NaN, both the same infinity, or within `relative` of max(1, |expected|).
inline bool close(double got, double expected, double relative) {
  if (std::isnan(got) || std::isnan(expected)) return std::isnan(got) && std::isnan(expected);
  if (std::isinf(got) || std::isinf(expected)) return got == expected;
  return std::abs(got - expected) <= relative * std::max(1.0, std::abs(expected));
}
/// Rounding of one stored result of this dtype, with some room.
inline double tolerance(DType dtype) {
  switch (dtype) {
    case DType::float64: return 1e-12;
    case DType::float16: return 2e-3;
    case DType::bfloat16: return 1.6e-2;
    default: return 1e-5;
  }
}
inline void require_close(const Array& got, const std::vector<double>& expected, double relative) {
  REQUIRE(got.numel() == static_cast<std::int64_t>(expected.size()));
  for (std::int64_t i = 0; i < got.numel(); ++i)
    if (!close(got[i], expected[static_cast<std::size_t>(i)], relative)) {
      INFO("element " << i << " of " << got.numel());
      REQUIRE(got[i] == expected[static_cast<std::size_t>(i)]);
    }
  SUCCEED();
}

/// run(threads' own outputs) gives the same bits with 1 and 2 threads.
inline void require_same_bits(const std::function<Array()>& run) {
  config::set_num_threads(1);
  const Array one = run();
  config::set_num_threads(2);
  const Array two = run();
  config::set_num_threads(0);
  REQUIRE(one.same_bits(two));
}

/// d(sum(weights * outputs))/d(input element i) by central differences.
inline std::vector<double> numeric_gradient(Array& input, const std::function<double()>& loss, double step = 1e-5) {
  std::vector<double> gradient;
  for (std::int64_t i = 0; i < input.numel(); ++i) {
    const double value = input[i];
    input.set(i, value + step);
    const double above = loss();
    input.set(i, value - step);
    const double below = loss();
    input.set(i, value);
    gradient.push_back((above - below) / (2 * step));
  }
  return gradient;
}
/// sum(a * b).
inline double dot(const Array& a, const Array& b) {
  double sum = 0;
  for (std::int64_t i = 0; i < a.numel(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace kernel_test
