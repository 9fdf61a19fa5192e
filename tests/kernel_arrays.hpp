// Arrays and naive float64 references for tests that call kernels through their table, below the Tensor.
#pragma once

#include <tensorlite/backend.hpp>
#include <tensorlite/device.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace kernel_arrays {
namespace tl = tensorlite;

/// Dense storage of one dtype with guards at both ends that a kernel must not touch.
template <class T> class Array {
 public:
  explicit Array(const tl::Dims& sizes) : sizes_(sizes), storage_(static_cast<std::size_t>(sizes.product()) + 2 * kGuard, T(kGuardValue)) {}

  T* data() { return storage_.data() + kGuard; }
  const T* data() const { return storage_.data() + kGuard; }
  std::int64_t numel() const { return sizes_.product(); }
  const tl::Dims& sizes() const { return sizes_; }
  double at(std::int64_t i) const { return static_cast<double>(data()[i]); }
  tl::View view() { return {data(), tl::dtype_of<T>, tl::cpu_device(), sizes_, tl::contiguous_strides(sizes_)}; }
  tl::View view(const tl::Dims& sizes, const tl::Dims& strides, std::int64_t offset = 0) {
    return {data() + offset, tl::dtype_of<T>, tl::cpu_device(), sizes, strides};
  }

  Array& fill(double value) {
    std::fill_n(data(), numel(), T(static_cast<float>(value)));
    return *this;
  }
  /// Small numbers: a few significant bits only, so that every dtype holds them exactly.
  Array& randomize(std::mt19937& generator) {
    std::uniform_int_distribution<int> numbers(-16, 16);
    const float scale = std::is_integral_v<T> ? 1.0f : 0.0625f;
    std::generate_n(data(), numel(), [&] { return T(static_cast<float>(numbers(generator)) * scale); });
    return *this;
  }
  bool guards_intact() const {
    const T guard = T(kGuardValue);
    const auto same = [&](const T& v) { return std::memcmp(&v, &guard, sizeof(T)) == 0; };
    return std::all_of(storage_.begin(), storage_.begin() + kGuard, same) && std::all_of(storage_.end() - kGuard, storage_.end(), same);
  }
  bool same_bits(const Array& other) const { return std::memcmp(data(), other.data(), static_cast<std::size_t>(numel()) * sizeof(T)) == 0; }

 private:
  static constexpr int kGuard = 64;
  static constexpr float kGuardValue = 77.0f;
  tl::Dims sizes_;
  std::vector<T> storage_;
};

/// Unit roundoff of the stored type and of the type that products are summed in.
template <class T> constexpr double storage_roundoff() {
  if constexpr (std::is_same_v<T, double>) return 1.2e-16;
  else if constexpr (std::is_same_v<T, float>) return 6.0e-8;
  else if constexpr (std::is_same_v<T, tl::float16>) return 4.9e-4;
  else if constexpr (std::is_same_v<T, tl::bfloat16>) return 4.0e-3;
  else return 0;
}
template <class T> constexpr double sum_roundoff() { return std::max(0.0, std::min(storage_roundoff<T>(), 6.0e-8)); }

/// A reference value with the sum of the magnitudes that went into it: what bounds the rounding error of any order of summation.
struct Reference {
  double value = 0, magnitude = 0;
  std::int64_t terms = 0;
  void add(double a, double b = 1) {
    value += a * b;
    magnitude += std::abs(a * b);
    ++terms;
  }
  /// slack: error that is allowed on top, absolute.
  template <class T> bool matches(double got, double slack = 0) const {
    if (std::isnan(value)) return std::isnan(got);
    const double bound =
        storage_roundoff<T>() * std::abs(value) + static_cast<double>(terms + 2) * sum_roundoff<T>() * magnitude + slack + 1e-30;
    return std::abs(got - value) <= bound;
  }
};

/// The first element that does not match, or -1. `spread`: error allowed everywhere, as a part of the largest sum of magnitudes; for
/// algorithms that mix neighbouring results.
template <class T> std::int64_t first_mismatch(const Array<T>& got, const std::vector<Reference>& expected, double spread = 0) {
  double largest = 0;
  for (const Reference& r : expected) largest = std::max(largest, r.magnitude);
  for (std::int64_t i = 0; i < got.numel(); ++i)
    if (!expected[static_cast<std::size_t>(i)].template matches<T>(got.at(i), spread * largest)) return i;
  return -1;
}

/// Runs f with a number of threads and restores the default.
template <class F> void with_threads(int count, F&& f) {
  tl::config::set_num_threads(count);
  f();
  tl::config::set_num_threads(0);
}

}  // namespace kernel_arrays
