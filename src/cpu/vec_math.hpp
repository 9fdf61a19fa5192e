// Functions of Vec: included at the end of vec.hpp.
#pragma once

#include "vec.hpp"

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

/// (exp(r) - 1 - r) / r^2 on [-ln 2 / 2, ln 2 / 2].
inline VecF exp_tail(VecF r) {
  VecF p(1.9875691500e-4);
  p = fma(p, r, VecF(1.3981999507e-3));
  p = fma(p, r, VecF(8.3334519073e-3));
  p = fma(p, r, VecF(4.1665795894e-2));
  p = fma(p, r, VecF(1.6666665459e-1));
  return fma(p, r, VecF(5.0000001201e-1));
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

/// A subnormal x is scaled into the normal range, as Eigen's logarithms need; `shift` is the power of two taken out of it.
struct Scaled {
  VecF x, shift;
};
inline Scaled out_of_subnormal(VecF x) {
  const Mask<float> tiny = x < VecF(1.17549435e-38f);
  return {select(tiny, x * VecF(8388608), x), select(tiny, VecF(-23), VecF(0))};
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
  VecF p(6.41553113012e-5);
  for (const double c : {3.94252995156e-5, -5.87912558506e-4, -8.23400167437e-4, 3.06140561497e-3, 6.47245959116e-3, -2.15056233954e-2,
                         -3.6441271003e-2, 2.79471765882e-1, -6.87160718133e-1, 1.02158270886})
    p = fma(p, t, VecF(c));
  return p * r;
}

/// erf(x) / x on [-1, 1] from x^2, good to 1.3e-9.
inline VecF erf_over_x(VecF square) {
  VecF p(7.87587506269e-5);
  for (const double c : {-8.01686428717e-4, 5.18908742343e-3, -2.68542120106e-2, 1.12835947152e-1, -3.76126266667e-1, 1.12837916585})
    p = fma(p, square, VecF(c));
  return p;
}

}  // namespace vec_detail

inline Vec<float> log(Vec<float> x) {
  const auto [normal, shift] = vec_detail::out_of_subnormal(x);
  return fma(shift, Vec<float>(0.69314718056), Vec<float>(Eigen::internal::plog(normal.p)));
}
inline Vec<float> log2(Vec<float> x) {
  const auto [normal, shift] = vec_detail::out_of_subnormal(x);
  return Vec<float>(Eigen::internal::plog2(normal.p)) + shift;
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
