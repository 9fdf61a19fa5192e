// Functions of Vec: included at the end of vec.hpp.
#pragma once

#include "vec.hpp"

#include <limits>

namespace tensorlite::cpu::TL_CPU_NS {

namespace vec_detail {

/// f of every lane.
template <class S, class F> inline Vec<S> by_lane(Vec<S> x, F f) {
  S lanes[Vec<S>::kSize];
  x.store(lanes);
  for (S& lane : lanes) lane = f(lane);
  return Vec<S>::load(lanes);
}
template <class S, class F> inline Vec<S> by_lane(Vec<S> x, Vec<S> y, F f) {
  S lanes[Vec<S>::kSize], others[Vec<S>::kSize];
  x.store(lanes);
  y.store(others);
  for (int i = 0; i < Vec<S>::kSize; ++i) lanes[i] = f(lanes[i], others[i]);
  return Vec<S>::load(lanes);
}

using VecF = Vec<float>;
using IntPacket = typename Eigen::internal::unpacket_traits<VecF::Packet>::integer_packet;

/// 2^n for whole n in [-126, 127], given as integers.
inline VecF power_of_two(IntPacket n) {
  const IntPacket biased = Eigen::internal::padd(n, Eigen::internal::pset1<IntPacket>(127));
  return VecF(Eigen::internal::preinterpret<VecF::Packet>(Eigen::internal::plogical_shift_left<23>(biased)));
}

/// x = n * ln 2 + rest with |rest| <= ln 2 / 2.
struct Reduced {
  VecF n, rest;
};
inline Reduced reduce_by_ln2(VecF x) {
  const VecF n(Eigen::internal::print(Eigen::internal::pmul(x.p, VecF(1.44269504088896341).p)));
  return {n, fma(n, VecF(2.12194440e-4), fma(n, VecF(-0.693359375), x))};  // ln 2 in two parts, n times the first is exact
}

/// Sum of coefficients[i] * x^(n - 1 - i).
template <int N> inline VecF polynomial(VecF x, const float (&coefficients)[N]) {
  VecF p(coefficients[0]);
  for (int i = 1; i < N; ++i) p = fma(p, x, VecF(coefficients[i]));
  return p;
}

// The coefficients below are Chebyshev fits, good to a tenth of a unit in the last place of the whole function.

/// (exp(r) - 1 - r) / r^2 on [-ln 2 / 2, ln 2 / 2].
inline VecF exp_tail(VecF r) {
  return polynomial(r, {1.98909809e-4f, 1.39336410e-3f, 8.33331093e-3f, 4.16664650e-2f, 1.66666667e-1f, 5.00000001e-1f});
}

/// (log(1 + f) - f + f^2 / 2) / f^3 on [sqrt(1/2) - 1, sqrt(2) - 1].
inline VecF log_tail(VecF f) {
  return polynomial(f, {6.97161147e-2f, -1.14797338e-1f, 1.16854199e-1f, -1.24256873e-1f, 1.42490576e-1f, -1.66678023e-1f, 2.00007157e-1f,
                        -2.49999970e-1f, 3.33333312e-1f});
}

}  // namespace vec_detail

inline Vec<float> exp(Vec<float> x) {
  using namespace vec_detail;
  const VecF clamped = fast_min(VecF(89), fast_max(VecF(-104), x));  // beyond: infinity and 0; NaN passes
  const auto [n, r] = reduce_by_ln2(clamped);
  const VecF mantissa = fma(exp_tail(r), r * r, r) + VecF(1);
  const IntPacket whole = Eigen::internal::pcast<VecF::Packet, IntPacket>(n.p);
  const IntPacket half = Eigen::internal::parithmetic_shift_right<1>(whole);  // in two steps: 2^n itself may be out of range
  return mantissa * power_of_two(half) * power_of_two(Eigen::internal::psub(whole, half));
}

inline Vec<float> expm1(Vec<float> x) {
  using namespace vec_detail;
  const VecF clamped = fast_min(VecF(89), fast_max(VecF(-30), x));
  const auto [n, r] = reduce_by_ln2(clamped);
  const VecF small = fma(exp_tail(r), r * r, r);  // expm1(r), exact to its own last place
  const IntPacket whole = Eigen::internal::pcast<VecF::Packet, IntPacket>(n.p);
  const VecF scale = power_of_two(Eigen::internal::psub(whole, Eigen::internal::pset1<IntPacket>(1)));  // half: 2^128 is out of range
  const VecF scaled = fma(scale, small, scale - VecF(0.5));
  return select(n == VecF(0), select(x == VecF(0), x, small), scaled + scaled);
}

namespace vec_detail {

inline VecF with_bits(VecF x, VecF bits) {
  return VecF(Eigen::internal::por(x.p, Eigen::internal::pand(bits.p, VecF(-0.0).p)));
}  // |x|, sign of bits

/// x = (1 + f) 2^e with 1 + f in [sqrt(1/2), sqrt(2)), subnormal numbers included.
struct LogParts {
  VecF e, log_mantissa;
};
inline LogParts log_parts(VecF x) {
  using namespace Eigen::internal;
  const Mask<float> tiny = x < VecF(1.17549435e-38f);
  const IntPacket bits = preinterpret<IntPacket>(select(tiny, x * VecF(8388608), x).p);
  const IntPacket e = parithmetic_shift_right<23>(psub(bits, pset1<IntPacket>(0x3f3504f3)));  // the exponent steps at sqrt(1/2)
  const VecF f = VecF(preinterpret<VecF::Packet>(psub(bits, plogical_shift_left<23>(e)))) - VecF(1), square = f * f;
  return {VecF(pcast<IntPacket, VecF::Packet>(e)) - select(tiny, VecF(23), VecF(0)), f + fma(square, VecF(-0.5), square * f * log_tail(f))};
}
/// A logarithm's values outside of the positive numbers.
inline VecF log_corners(VecF x, VecF result) {
  const VecF at_zero = select(x == VecF(0), VecF(-HUGE_VALF), VecF(std::numeric_limits<float>::quiet_NaN()));
  return select(x > VecF(0), select(x == VecF(HUGE_VALF), x, result), at_zero);
}

/// exp(-factor * x^2), factor a power of two: the square's rounding error, which exp would amplify, is carried along.
inline VecF exp_minus_square(VecF x, float factor) {
  const VecF high(Eigen::internal::pand(x.p, Eigen::internal::pset1frombits<VecF::Packet>(0xfffff000u)));  // its square is exact
  const VecF rest = (x - high) * (x + high) * VecF(-factor);
  return exp(high * high * VecF(-factor)) * (fma(exp_tail(rest), rest * rest, rest) + VecF(1));
}

/// exp(x^2) erfc(x) for x >= 0: a Chebyshev fit of it times x + 2, in (x - 2) / (x + 2), good to 7e-9 up to 10.2.
inline VecF erfcx(VecF x) {
  const VecF r = VecF(1) / (x + VecF(2)), t = (x - VecF(2)) * r;
  return r * polynomial(t, {6.41553113e-5f, 3.94252995e-5f, -5.87912558e-4f, -8.23400167e-4f, 3.06140561e-3f, 6.47245959e-3f,
                            -2.15056234e-2f, -3.64412710e-2f, 2.79471766e-1f, -6.87160718e-1f, 1.02158271f});
}

/// erf(x) / x on [-1, 1] from x^2, good to 1.3e-9.
inline VecF erf_over_x(VecF square) {
  return polynomial(square,
                    {7.87587506e-5f, -8.01686429e-4f, 5.18908742e-3f, -2.68542120e-2f, 1.12835947e-1f, -3.76126267e-1f, 1.12837917f});
}

}  // namespace vec_detail

inline Vec<float> log(Vec<float> x) {
  const auto [e, log_mantissa] = vec_detail::log_parts(x);
  const Vec<float> low = fma(e, Vec<float>(-2.12194440e-4), log_mantissa);  // ln 2 in two parts, e times the first is exact
  return vec_detail::log_corners(x, fma(e, Vec<float>(0.693359375), low));
}
inline Vec<float> log2(Vec<float> x) {
  const auto [e, log_mantissa] = vec_detail::log_parts(x);
  return vec_detail::log_corners(x, fma(log_mantissa, Vec<float>(1.44269504088896341), e));
}
inline Vec<float> log1p(Vec<float> x) {
  using vec_detail::VecF;
  const VecF u = x + VecF(1), lost = x - (u - VecF(1));
  return select((u == VecF(HUGE_VALF)) | (x == VecF(0)), x, log(u) + select(u == VecF(0), VecF(0), lost / u));
}

inline Vec<float> tanh(Vec<float> x) {
  using vec_detail::VecF;
  const VecF t = expm1(fast_min(VecF(20), abs(x)) * VecF(2));
  return vec_detail::with_bits(t / (t + VecF(2)), x);
}

inline Vec<float> erfc(Vec<float> x) {
  using vec_detail::VecF;
  const VecF z = fast_min(VecF(10.2), abs(x)), tail = vec_detail::erfcx(z) * vec_detail::exp_minus_square(z, 1);
  return select(x < VecF(0), VecF(2) - tail, tail);
}
inline Vec<float> erf(Vec<float> x) {
  using vec_detail::VecF;
  const VecF z = abs(x);
  return select(z < VecF(1), x * vec_detail::erf_over_x(x * x), vec_detail::with_bits(VecF(1) - erfc(z), x));
}
/// The normal distribution's cumulative probability, its small tail included.
inline Vec<float> normal_cdf(Vec<float> x) {
  using vec_detail::VecF;
  const VecF z = fast_min(VecF(14.4), abs(x));
  const VecF tail = VecF(0.5) * vec_detail::erfcx(z * VecF(0.70710678118654752440)) * vec_detail::exp_minus_square(z, 0.5f);
  return select(x > VecF(0), VecF(1) - tail, tail);
}

inline Vec<float> sin(Vec<float> x) { return Vec<float>(Eigen::internal::psin_float(x.p)); }
inline Vec<float> cos(Vec<float> x) { return Vec<float>(Eigen::internal::pcos_float(x.p)); }

template <class S> inline Vec<S> floor(Vec<S> x) { return Vec<S>(Eigen::internal::pfloor(x.p)); }
template <class S> inline Vec<S> ceil(Vec<S> x) { return Vec<S>(Eigen::internal::pceil(x.p)); }
template <class S> inline Vec<S> rint(Vec<S> x) { return Vec<S>(Eigen::internal::print(x.p)); }
template <class S> inline Vec<S> trunc(Vec<S> x) { return select(x < Vec<S>(0), ceil(x), floor(x)); }

#define TL_BY_LANE(S, name)                                          \
  inline Vec<S> name(Vec<S> x) {                                     \
    return vec_detail::by_lane(x, [](S v) { return std::name(v); }); \
  }
#define TL_BY_LANE2(S, name)                                                    \
  inline Vec<S> name(Vec<S> x, Vec<S> y) {                                      \
    return vec_detail::by_lane(x, y, [](S v, S w) { return std::name(v, w); }); \
  }
#define TL_BY_LANE_BOTH(X) X(exp2) X(log10) X(tan) X(asin) X(acos) X(atan) X(sinh) X(cosh) X(asinh) X(acosh) X(atanh)
#define TL_BY_LANE_DOUBLE(X) X(exp) X(expm1) X(log) X(log2) X(log1p) X(sin) X(cos) X(tanh) X(erf) X(erfc)
#define TL_FLOAT(name) TL_BY_LANE(float, name)
#define TL_DOUBLE(name) TL_BY_LANE(double, name)
TL_BY_LANE_BOTH(TL_FLOAT)
TL_BY_LANE_BOTH(TL_DOUBLE)
TL_BY_LANE_DOUBLE(TL_DOUBLE)
#define TL_BOTH2(name) TL_BY_LANE2(float, name) TL_BY_LANE2(double, name)
TL_BOTH2(pow)
TL_BOTH2(fmod)
TL_BOTH2(atan2)
TL_BOTH2(hypot)
#undef TL_BOTH2
#undef TL_DOUBLE
#undef TL_FLOAT
#undef TL_BY_LANE_DOUBLE
#undef TL_BY_LANE_BOTH
#undef TL_BY_LANE2
#undef TL_BY_LANE

}  // namespace tensorlite::cpu::TL_CPU_NS
