// L0: the functions of one number that elementwise functors are written with, for host and device: the counterpart of src/cpu/vec_math.hpp.
#pragma once

#include <tensorlite/base.hpp>

#include <cmath>

namespace tensorlite::elementwise {

template <class T> TL_HOST_DEVICE inline T select(bool condition, T a, T b) { return condition ? a : b; }

#define TL_MATH(name, float_function, double_function)                      \
  TL_HOST_DEVICE inline float name(float x) { return ::float_function(x); } \
  TL_HOST_DEVICE inline double name(double x) { return ::double_function(x); }
#define TL_MATH2(name, float_function, double_function)                                 \
  TL_HOST_DEVICE inline float name(float x, float y) { return ::float_function(x, y); } \
  TL_HOST_DEVICE inline double name(double x, double y) { return ::double_function(x, y); }
TL_MATH(sqrt, sqrtf, sqrt)
TL_MATH(exp, expf, exp)
TL_MATH(exp2, exp2f, exp2)
TL_MATH(expm1, expm1f, expm1)
TL_MATH(log, logf, log)
TL_MATH(log1p, log1pf, log1p)
TL_MATH(log2, log2f, log2)
TL_MATH(log10, log10f, log10)
TL_MATH(sin, sinf, sin)
TL_MATH(cos, cosf, cos)
TL_MATH(tan, tanf, tan)
TL_MATH(asin, asinf, asin)
TL_MATH(acos, acosf, acos)
TL_MATH(atan, atanf, atan)
TL_MATH(sinh, sinhf, sinh)
TL_MATH(cosh, coshf, cosh)
TL_MATH(tanh, tanhf, tanh)
TL_MATH(asinh, asinhf, asinh)
TL_MATH(acosh, acoshf, acosh)
TL_MATH(atanh, atanhf, atanh)
TL_MATH(erf, erff, erf)
TL_MATH(erfc, erfcf, erfc)
TL_MATH(floor, floorf, floor)
TL_MATH(ceil, ceilf, ceil)
TL_MATH(rint, rintf, rint)
TL_MATH(trunc, truncf, trunc)
TL_MATH2(pow, powf, pow)
TL_MATH2(fmod, fmodf, fmod)
TL_MATH2(atan2, atan2f, atan2)
TL_MATH2(hypot, hypotf, hypot)
#undef TL_MATH
#undef TL_MATH2

/// |x|; the smallest integer stays itself, as it does in NumPy.
template <class T> TL_HOST_DEVICE inline T abs(T x) {
  if constexpr (std::is_floating_point_v<T>)
    return sizeof(T) == 4 ? static_cast<T>(::fabsf(static_cast<float>(x))) : static_cast<T>(::fabs(x));
  else if constexpr (std::is_unsigned_v<T>) return x;
  else return static_cast<T>(x < 0 ? 0 - static_cast<std::make_unsigned_t<T>>(x) : static_cast<std::make_unsigned_t<T>>(x));
}

// Sums and products of integers wrap around, without undefined behaviour.
template <class T> TL_HOST_DEVICE inline T add(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) + static_cast<std::make_unsigned_t<T>>(b));
  else return a + b;
}
template <class T> TL_HOST_DEVICE inline T subtract(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) - static_cast<std::make_unsigned_t<T>>(b));
  else return a - b;
}
template <class T> TL_HOST_DEVICE inline T multiply(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) * static_cast<std::make_unsigned_t<T>>(b));
  else return a * b;
}

/// A number as another dtype. To an integer: integers wrap around, floating-point numbers are cut towards 0 and saturate (NaN gives 0), the
/// same on every device. To bool: whether it is not 0.
template <class To, class From> TL_HOST_DEVICE inline To convert(From x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (std::is_same_v<From, float16> || std::is_same_v<From, bfloat16>) {
    return convert<To>(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != From(0);
  } else if constexpr (std::is_same_v<To, float16> || std::is_same_v<To, bfloat16>) {
    return To(static_cast<float>(x));
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    constexpr To low = std::numeric_limits<To>::min(), high = std::numeric_limits<To>::max();
    if (x >= static_cast<From>(high)) return high;
    return x > static_cast<From>(low) ? static_cast<To>(x) : (x != x ? To(0) : low);
  } else {
    return static_cast<To>(x);
  }
}

}  // namespace tensorlite::elementwise
