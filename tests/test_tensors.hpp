// What tests compare tensors with.
#pragma once

#include "catch.hpp"
#include "test_devices.hpp"

#include <cmath>
#include <string>
#include <vector>

/// All elements as float64, row-major.
inline std::vector<double> values(const tensorlite::Tensor& t) {
  tensorlite::NoGradGuard guard;
  return t.detach().cpu().to(tensorlite::kFloat64).to_vector<double>();
}

/// Empty when every element agrees within atol + rtol * |expected| (NaN with NaN, an infinity with itself), else the first that does not.
inline std::string difference(const std::vector<double>& got, const std::vector<double>& expected, double rtol = 1e-5, double atol = 1e-6) {
  if (got.size() != expected.size()) return std::to_string(got.size()) + " elements, expected " + std::to_string(expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(expected[i])) continue;
    if (got[i] == expected[i]) continue;
    if (std::abs(got[i] - expected[i]) <= atol + rtol * std::abs(expected[i]) && std::isfinite(expected[i])) continue;
    return "element " + std::to_string(i) + " is " + std::to_string(got[i]) + ", expected " + std::to_string(expected[i]);
  }
  return "";
}
inline std::string difference(const tensorlite::Tensor& got, const std::vector<double>& expected, double rtol = 1e-5, double atol = 1e-6) {
  return difference(values(got), expected, rtol, atol);
}
template <class T>
requires(std::is_same_v<T, tensorlite::Tensor>)  // or braces of numbers would be taken for a tensor
    std::string difference(const tensorlite::Tensor& got, const T& expected, double rtol = 1e-5, double atol = 1e-6) {
  if (!(got.sizes() == expected.sizes())) return tensorlite::detail::concat("shape ", got.sizes(), ", expected ", expected.sizes());
  return difference(values(got), values(expected), rtol, atol);
}

/// CHECK that shows the first difference.
#define CHECK_VALUES(...) CHECK(difference(__VA_ARGS__) == "")

/// 0, 1, 2, ... as float32.
inline tensorlite::Tensor count_up(const tensorlite::Dims& sizes, double first = 0, double step = 1) {
  using namespace tensorlite;
  const std::int64_t n = sizes.product();
  return (arange(0, n).to(kFloat32) * step + first).reshape(sizes);
}
/// Recorded from here on.
inline tensorlite::Tensor leaf(const tensorlite::Tensor& t) { return t.detach().clone().requires_grad_(); }
