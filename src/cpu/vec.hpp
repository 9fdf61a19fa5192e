// Vec<float>, Vec<double>: one SIMD register over Eigen's packets, with the operators and functions that elementwise functors use.
// Functions of Vec<float> are computed in registers to a few units in the last place; those of Vec<double>, and the rare ones of
// float, lane by lane with the standard library.
#pragma once

#include "isa.hpp"

#include <Eigen/Core>

#include <cmath>
#include <cstdint>
#include <type_traits>

namespace tensorlite::cpu::TL_CPU_NS {

#if defined(__AVX512F__)
/// The result of a comparison, one bit per lane: AVX-512 has registers for that.
template <class S> struct Mask {
  unsigned bits;
  friend Mask operator&(Mask a, Mask b) { return {a.bits & b.bits}; }
  friend Mask operator|(Mask a, Mask b) { return {a.bits | b.bits}; }
  friend Mask operator^(Mask a, Mask b) { return {a.bits ^ b.bits}; }
  friend Mask operator!(Mask a) { return {~a.bits}; }
};

namespace vec_detail {
using Eigen::internal::Packet16f, Eigen::internal::Packet8d;
inline Mask<float> less(Packet16f a, Packet16f b) { return {_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ)}; }
inline Mask<float> less_or_equal(Packet16f a, Packet16f b) { return {_mm512_cmp_ps_mask(a, b, _CMP_LE_OQ)}; }
inline Mask<float> equal(Packet16f a, Packet16f b) { return {_mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ)}; }
inline Mask<double> less(Packet8d a, Packet8d b) { return {_mm512_cmp_pd_mask(a, b, _CMP_LT_OQ)}; }
inline Mask<double> less_or_equal(Packet8d a, Packet8d b) { return {_mm512_cmp_pd_mask(a, b, _CMP_LE_OQ)}; }
inline Mask<double> equal(Packet8d a, Packet8d b) { return {_mm512_cmp_pd_mask(a, b, _CMP_EQ_OQ)}; }
inline Packet16f choose(Mask<float> m, Packet16f a, Packet16f b) { return _mm512_mask_blend_ps(static_cast<__mmask16>(m.bits), b, a); }
inline Packet8d choose(Mask<double> m, Packet8d a, Packet8d b) { return _mm512_mask_blend_pd(static_cast<__mmask8>(m.bits), b, a); }
}  // namespace vec_detail
#else
/// The result of a comparison, all bits of a lane set or clear.
template <class S> struct Mask {
  using Packet = typename Eigen::internal::packet_traits<S>::type;
  Packet p;
  friend Mask operator&(Mask a, Mask b) { return {Eigen::internal::pand(a.p, b.p)}; }
  friend Mask operator|(Mask a, Mask b) { return {Eigen::internal::por(a.p, b.p)}; }
  friend Mask operator^(Mask a, Mask b) { return {Eigen::internal::pxor(a.p, b.p)}; }
  friend Mask operator!(Mask a) { return {Eigen::internal::pxor(a.p, Eigen::internal::ptrue(a.p))}; }
};

namespace vec_detail {
using PacketF = Mask<float>::Packet;
using PacketD = Mask<double>::Packet;
inline Mask<float> less(PacketF a, PacketF b) { return {Eigen::internal::pcmp_lt(a, b)}; }
inline Mask<float> less_or_equal(PacketF a, PacketF b) { return {Eigen::internal::pcmp_le(a, b)}; }
inline Mask<float> equal(PacketF a, PacketF b) { return {Eigen::internal::pcmp_eq(a, b)}; }
inline Mask<double> less(PacketD a, PacketD b) { return {Eigen::internal::pcmp_lt(a, b)}; }
inline Mask<double> less_or_equal(PacketD a, PacketD b) { return {Eigen::internal::pcmp_le(a, b)}; }
inline Mask<double> equal(PacketD a, PacketD b) { return {Eigen::internal::pcmp_eq(a, b)}; }
inline PacketF choose(Mask<float> m, PacketF a, PacketF b) { return Eigen::internal::pselect(m.p, a, b); }
inline PacketD choose(Mask<double> m, PacketD a, PacketD b) { return Eigen::internal::pselect(m.p, a, b); }
}  // namespace vec_detail
#endif

template <class S> struct Vec {
  using Scalar = S;
  using Packet = typename Eigen::internal::packet_traits<S>::type;
  static constexpr int kSize = Eigen::internal::unpacket_traits<Packet>::size;
  Packet p;

  Vec() = default;
  explicit Vec(Packet packet) : p(packet) {}
  template <class N>
  requires(std::is_arithmetic_v<N>) explicit Vec(N value) : p(Eigen::internal::pset1<Packet>(static_cast<S>(value))) {}

  static Vec load(const S* from) { return Vec(Eigen::internal::ploadu<Packet>(from)); }
  void store(S* to) const { Eigen::internal::pstoreu(to, p); }
  /// The first `count` lanes; the others are 0.
  static Vec load(const S* from, std::int64_t count) {
    S lanes[kSize] = {};
    for (int i = 0; i < count; ++i) lanes[i] = from[i];
    return load(lanes);
  }
  void store(S* to, std::int64_t count) const {
    S lanes[kSize];
    store(lanes);
    for (int i = 0; i < count; ++i) to[i] = lanes[i];
  }

  friend Vec operator+(Vec a, Vec b) { return Vec(Eigen::internal::padd(a.p, b.p)); }
  friend Vec operator-(Vec a, Vec b) { return Vec(Eigen::internal::psub(a.p, b.p)); }
  friend Vec operator*(Vec a, Vec b) { return Vec(Eigen::internal::pmul(a.p, b.p)); }
  friend Vec operator/(Vec a, Vec b) { return Vec(Eigen::internal::pdiv(a.p, b.p)); }
  friend Vec operator-(Vec a) { return Vec(Eigen::internal::pxor(a.p, Vec(S(-0.0)).p)); }
  Vec& operator+=(Vec b) { return *this = *this + b; }
  Vec& operator-=(Vec b) { return *this = *this - b; }
  Vec& operator*=(Vec b) { return *this = *this * b; }
  Vec& operator/=(Vec b) { return *this = *this / b; }
  friend Mask<S> operator<(Vec a, Vec b) { return vec_detail::less(a.p, b.p); }
  friend Mask<S> operator<=(Vec a, Vec b) { return vec_detail::less_or_equal(a.p, b.p); }
  friend Mask<S> operator>(Vec a, Vec b) { return vec_detail::less(b.p, a.p); }
  friend Mask<S> operator>=(Vec a, Vec b) { return vec_detail::less_or_equal(b.p, a.p); }
  friend Mask<S> operator==(Vec a, Vec b) { return vec_detail::equal(a.p, b.p); }
  friend Mask<S> operator!=(Vec a, Vec b) { return !(a == b); }
};

template <class S> inline Vec<S> select(Mask<S> mask, Vec<S> a, Vec<S> b) { return Vec<S>(vec_detail::choose(mask, a.p, b.p)); }
template <class S> inline Vec<S> sqrt(Vec<S> x) { return Vec<S>(Eigen::internal::psqrt(x.p)); }
template <class S> inline Vec<S> abs(Vec<S> x) { return Vec<S>(Eigen::internal::pabs(x.p)); }
/// a * b + c, rounded once where the instruction set can.
template <class S> inline Vec<S> fma(Vec<S> a, Vec<S> b, Vec<S> c) { return Vec<S>(Eigen::internal::pmadd(a.p, b.p, c.p)); }
/// The instruction's minimum and maximum: b when either is NaN.
template <class S> inline Vec<S> fast_min(Vec<S> a, Vec<S> b) { return Vec<S>(Eigen::internal::pmin(b.p, a.p)); }
template <class S> inline Vec<S> fast_max(Vec<S> a, Vec<S> b) { return Vec<S>(Eigen::internal::pmax(b.p, a.p)); }

/// Sum, largest and smallest of the lanes, in a fixed order.
template <class S> inline S sum(Vec<S> x) { return Eigen::internal::predux(x.p); }
template <class S> inline S max(Vec<S> x) { return Eigen::internal::predux_max(x.p); }
template <class S> inline S min(Vec<S> x) { return Eigen::internal::predux_min(x.p); }

}  // namespace tensorlite::cpu::TL_CPU_NS

#include "vec_math.hpp"
