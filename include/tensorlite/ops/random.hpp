// L3: dropout and random fills. The numbers depend on the seed and the element's index alone: the same on every device and thread count.
#pragma once

#include <tensorlite/ops/elementwise.hpp>

namespace tensorlite {

namespace detail {
TL_API Tensor dropout_forward(const Tensor& x, double p, PhiloxKey key);
/// The mask is drawn again from its key instead of being kept.
inline Tensor dropout_op(const Tensor& x, double p, PhiloxKey key) {
  return record("Dropout", dropout_forward(x, p, key), {x}, {},
                [p, key](const BackwardContext&, const Tensor& g) { return Gradients{dropout_op(g, p, key)}; });
}
TL_API void random_(Tensor& x, const char* op, RandomKind kind, double a, double b);
}  // namespace detail

/// Zeroes each element with probability p and scales the others by 1 / (1 - p). p = 1 gives zeros. Throws ValueError unless 0 <= p <= 1.
inline Tensor dropout(const Tensor& x, double p) {
  TL_CHECK(p >= 0 && p <= 1, ValueError, "dropout", "the probability must be in [0, 1], it is ", p);
  TL_CHECK(is_floating(x.dtype()), DTypeError, "dropout", "needs a floating tensor, got ", x.dtype());
  return p == 0 ? x : detail::dropout_op(x, p, next_philox_key());
}

inline Tensor& Tensor::uniform_(double low, double high) {
  TL_CHECK(low <= high, ValueError, "uniform_", "low ", low, " is above high ", high);
  detail::random_(*this, "uniform_", RandomKind::uniform, low, high);
  return *this;
}
inline Tensor& Tensor::normal_(double mean, double deviation) {
  TL_CHECK(deviation >= 0, ValueError, "normal_", "the deviation must not be negative, it is ", deviation);
  detail::random_(*this, "normal_", RandomKind::normal, mean, deviation);
  return *this;
}

}  // namespace tensorlite
