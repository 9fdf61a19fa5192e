// Accumulators of reductions. add(value, index) takes one value, merge another accumulator of the same reduction.
#pragma once

#include "numeric.cuh"

#include <algorithm>
#include <limits>

namespace tensorlite::cuda {

/// Integers and bool are summed in int64.
template <class T> using SumType = std::conditional_t<std::is_integral_v<T>, std::int64_t, Compute<T>>;

template <class C> struct alignas(std::max(alignof(C), std::size_t(4))) Sum {
  C value = 0;
  __device__ void add(C x, std::int64_t) { value += x; }
  __device__ void merge(const Sum& o) { value += o.value; }
};
template <class C> struct SumOfSquares {
  C value = 0;
  __device__ void add(C x, std::int64_t) { value += x * x; }
  __device__ void merge(const SumOfSquares& o) { value += o.value; }
};
template <class C> struct Product {
  C value = 1;
  __device__ void add(C x, std::int64_t) { value *= x; }
  __device__ void merge(const Product& o) { value *= o.value; }
};

template <class C> __device__ constexpr C lowest() {
  if constexpr (std::is_floating_point_v<C>) return -std::numeric_limits<C>::infinity();
  else return std::numeric_limits<C>::lowest();
}
template <class C> __device__ constexpr C highest() {
  if constexpr (std::is_floating_point_v<C>) return std::numeric_limits<C>::infinity();
  else return std::numeric_limits<C>::max();
}

/// The largest (or smallest) value; a NaN wins.
template <class C, bool kMax> struct alignas(std::max(alignof(C), std::size_t(4))) Extreme {
  C value = kMax ? lowest<C>() : highest<C>();
  __device__ void add(C x, std::int64_t) {
    if ((kMax ? x > value : x < value) || x != x) value = x;
  }
  __device__ void merge(const Extreme& o) { add(o.value, 0); }
};

/// Where the largest (or smallest) value stands; the first NaN wins, then the first of equals.
template <class C, bool kMax> struct ArgExtreme {
  C value = 0;
  std::int64_t index = -1;
  __device__ bool loses_to(C x, std::int64_t i) const {
    if (index < 0) return true;
    const bool nan = value != value, other_nan = x != x;
    if (nan || other_nan) return nan && other_nan ? i < index : other_nan;
    return (kMax ? x > value : x < value) || (x == value && i < index);
  }
  __device__ void add(C x, std::int64_t i) {
    if (loses_to(x, i)) value = x, index = i;
  }
  __device__ void merge(const ArgExtreme& o) {
    if (o.index >= 0) add(o.value, o.index);
  }
};

struct alignas(4) Any {
  bool value = false;
  template <class C> __device__ void add(C x, std::int64_t) { value = value || x != 0; }
  __device__ void merge(const Any& o) { value = value || o.value; }
};
struct alignas(4) All {
  bool value = true;
  template <class C> __device__ void add(C x, std::int64_t) { value = value && x != 0; }
  __device__ void merge(const All& o) { value = value && o.value; }
};

/// Mean and sum of squared deviations, by Welford's and Chan's updates: exact where sums of squares cancel.
template <class C> struct Moments {
  C count = 0, mean = 0, deviation = 0;
  __device__ void add(C x, std::int64_t) {
    count += 1;
    const C delta = x - mean;
    mean += delta / count;
    deviation += delta * (x - mean);
  }
  __device__ void merge(const Moments& o) {
    if (o.count == 0) return;
    if (count == 0) {
      *this = o;
      return;
    }
    const C total = count + o.count, delta = o.mean - mean;
    mean += delta * (o.count / total);
    deviation += o.deviation + delta * delta * (count * (o.count / total));
    count = total;
  }
};

/// log of the sum of exponentials, relative to the largest value so far.
template <class C> struct LogSumExp {
  C largest = lowest<C>(), sum = 0;
  __device__ void add(C x, std::int64_t) {
    if (x > largest) {
      sum = sum * rescale(largest, x) + 1;
      largest = x;
    } else {
      sum += rescale(x, largest);
    }
  }
  __device__ void merge(const LogSumExp& o) {
    if (o.largest > largest) {
      sum = sum * rescale(largest, o.largest) + o.sum;
      largest = o.largest;
    } else {
      sum += o.sum * rescale(o.largest, largest);
    }
  }
  __device__ C result() const { return largest + log(sum); }
  /// exp(x - reference); 1 for two equal infinities.
  __device__ static C rescale(C x, C reference) { return x == reference ? C(1) : exp(x - reference); }
};

}  // namespace tensorlite::cuda
