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
inline Vec<double> exp(Vec<double> x) {
  return vec_detail::by_lane(x, [](double v) { return std::exp(v); });
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
inline Vec<double> expm1(Vec<double> x) {
  return vec_detail::by_lane(x, [](double v) { return std::expm1(v); });
}

inline Vec<float> log(Vec<float> x) { return Vec<float>(Eigen::internal::plog(x.p)); }
inline Vec<double> log(Vec<double> x) {
  return vec_detail::by_lane(x, [](double v) { return std::log(v); });
}

inline Vec<float> tanh(Vec<float> x) {
  using vec_detail::VecF;
  const VecF t = expm1(fast_min(VecF(20), abs(x)) * VecF(2));
  const VecF magnitude = t / (t + VecF(2));
  return VecF(Eigen::internal::por(magnitude.p, Eigen::internal::pand(x.p, VecF(-0.0).p)));
}
inline Vec<double> tanh(Vec<double> x) {
  return vec_detail::by_lane(x, [](double v) { return std::tanh(v); });
}

}  // namespace tensorlite::cpu::TL_CPU_NS
