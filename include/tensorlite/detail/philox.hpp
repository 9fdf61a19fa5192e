// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011) and what is drawn from it, for host and
// device. Every value is a function of key and element index alone and has the same bits on every device: only integer operations, and
// + - * / sqrt fma, each rounded once as IEEE 754 says. No sum here has a product as an operand, so a compiler finds nothing to contract.
#pragma once

#include <tensorlite/backend.hpp>

#include <cmath>

namespace tensorlite::detail {

/// Four 32-bit words of one draw.
struct PhiloxWords {
  std::uint32_t word[4];
};

inline constexpr int kPhiloxRounds = 10;

/// One round; between rounds the key is bumped.
TL_HOST_DEVICE inline void philox_round(std::uint32_t& c0, std::uint32_t& c1, std::uint32_t& c2, std::uint32_t& c3, std::uint32_t k0,
                                        std::uint32_t k1) {
  const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0, p1 = std::uint64_t{0xCD9E8D57u} * c2;
  c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
  c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
  c1 = static_cast<std::uint32_t>(p1);
  c3 = static_cast<std::uint32_t>(p0);
}
TL_HOST_DEVICE inline void philox_bump(std::uint32_t& k0, std::uint32_t& k1) {
  k0 += 0x9E3779B9u;
  k1 += 0xBB67AE85u;
}

/// The words of counter (low, high) under `seed`: low is an element group's index, high the key's offset.
TL_HOST_DEVICE inline PhiloxWords philox(std::uint64_t low, std::uint64_t high, std::uint64_t seed) {
  std::uint32_t c0 = static_cast<std::uint32_t>(low), c1 = static_cast<std::uint32_t>(low >> 32), c2 = static_cast<std::uint32_t>(high),
                c3 = static_cast<std::uint32_t>(high >> 32), k0 = static_cast<std::uint32_t>(seed),
                k1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    philox_round(c0, c1, c2, c3, k0, k1);
    philox_bump(k0, k1);
  }
  return {{c0, c1, c2, c3}};
}
/// Group `index` of a draw.
TL_HOST_DEVICE inline PhiloxWords philox(const PhiloxKey& key, std::uint64_t index) { return philox(index, key.offset, key.seed); }

/// In [0, bound), by multiplication: the bias is below bound / 2^64.
TL_HOST_DEVICE inline std::uint64_t uniform_below(std::uint64_t random, std::uint64_t bound) {
  const std::uint64_t r1 = random >> 32, r0 = random & 0xffffffffu, b1 = bound >> 32, b0 = bound & 0xffffffffu;
  const std::uint64_t middle = r1 * b0 + ((r0 * b0) >> 32), cross = r0 * b1 + (middle & 0xffffffffu);
  return r1 * b1 + (middle >> 32) + (cross >> 32);
}
TL_HOST_DEVICE inline std::uint64_t join(std::uint32_t high, std::uint32_t low) { return std::uint64_t{high} << 32 | low; }

/// Fisher-Yates: every order is equally likely, and a key always gives the same one.
template <class T> void shuffle(std::span<T> values, const PhiloxKey& key) {
  for (std::size_t i = values.size(); i > 1; --i) {
    const PhiloxWords w = philox(key, i);
    std::swap(values[i - 1], values[static_cast<std::size_t>(uniform_below(join(w.word[0], w.word[1]), i))]);
  }
}

}  // namespace tensorlite::detail

// What the kernels `random` and `dropout` draw.
namespace tensorlite::detail::draws {

/// Elements that one group of 128 bits gives: 4 of 32 bits (float32, half types, dropout), 2 of 64 bits (float64, integers).
template <class T> inline constexpr int kPerGroup = std::is_same_v<T, double> || std::is_integral_v<T> ? 2 : 4;

// ---------------------------------------------------------------------------------------------------------------------- uniform

TL_HOST_DEVICE inline float fused(float a, float b, float c) { return ::fmaf(a, b, c); }
TL_HOST_DEVICE inline double fused(double a, double b, double c) { return ::fma(a, b, c); }

/// The largest T below `bound`.
template <class T> TL_HOST_DEVICE inline T next_below(T bound) {
  using Bits = std::conditional_t<sizeof(T) == 2, std::uint16_t, std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>;
  const Bits sign = static_cast<Bits>(Bits{1} << (8 * sizeof(T) - 1)), bits = std::bit_cast<Bits>(bound);
  if ((bits & static_cast<Bits>(~sign)) == 0) return std::bit_cast<T>(static_cast<Bits>(sign | 1));
  return std::bit_cast<T>(static_cast<Bits>(bits & sign ? bits + 1 : bits - 1));
}

/// A number in [a, b) from 24 random bits, or 53 for double: a + u (b - a), rounded down where rounding would reach b.
template <class T, class C> TL_HOST_DEVICE inline T scaled(C u, C a, C b) {
  const T value = T(fused(u, b - a, a));
  if (static_cast<C>(value) < b) return value;
  T top = T(b);
  return a < b ? (static_cast<C>(top) < b ? top : next_below(top)) : T(a);
}
template <class T> TL_HOST_DEVICE inline T uniform(std::uint32_t word, float a, float b) {
  return scaled<T>(static_cast<float>(word >> 8) * 5.9604644775390625e-8f, a, b);
}
TL_HOST_DEVICE inline double uniform(std::uint64_t word, double a, double b) {
  return scaled<double>(static_cast<double>(word >> 11) * 1.1102230246251565404e-16, a, b);
}

// ----------------------------------------------------------------------------------------------------------------------- normal
// Box-Muller. log, sin and cos by their series, to one or two units in the last place of T on the ranges that occur.

template <class T> struct Pair { T first, second; };

/// ln x of a normal x in (0, 1], given as m 2^e with m in [sqrt(1/2), sqrt(2)): 2 atanh(s), s = (m - 1) / (m + 1).
template <class T> TL_HOST_DEVICE inline T log_of(T m, T e) {
  constexpr int kTerms = sizeof(T) == 4 ? 5 : 11;
  const T f = m - T(1), s = f / (m + T(1)), square = s * s;
  T p = T(1) / T(2 * kTerms + 1);
  for (int k = kTerms - 1; k > 0; --k) p = fused(p, square, T(1) / T(2 * k + 1));
  const T twice = s + s, log_m = fused(twice * square, p, twice);
  return fused(e, T(0.69314718055994530942), log_m);
}
TL_HOST_DEVICE inline float log_of(float x) {
  const std::uint32_t shifted = std::bit_cast<std::uint32_t>(x) + (0x3f800000u - 0x3f3504f3u);  // the exponent steps at sqrt(1/2)
  const auto e = static_cast<float>(static_cast<std::int32_t>(shifted >> 23) - 127);
  return log_of(std::bit_cast<float>((shifted & 0x007fffffu) + 0x3f3504f3u), e);
}
TL_HOST_DEVICE inline double log_of(double x) {
  const std::uint64_t shifted = std::bit_cast<std::uint64_t>(x) + (0x3ff0000000000000u - 0x3fe6a09e667f3bcdu);
  const auto e = static_cast<double>(static_cast<std::int32_t>(shifted >> 52) - 1023);
  return log_of(std::bit_cast<double>((shifted & 0x000fffffffffffffu) + 0x3fe6a09e667f3bcdu), e);
}

/// Cosine and sine of quarter * pi / 2 + x * pi / 2, |x| <= 1/2.
template <class T> TL_HOST_DEVICE inline Pair<T> turn(std::uint32_t quarter, T x) {
  const T y = x * T(1.57079632679489661923), square = y * y;
  T s, c;
  if constexpr (sizeof(T) == 4) {
    s = fused(fused(T(2.7557319e-6), square, T(-1.9841270e-4)), square, T(8.3333333e-3));
    c = fused(fused(T(2.4801587e-5), square, T(-1.3888889e-3)), square, T(4.1666667e-2));
  } else {
    s = fused(T(-7.6471637318198164759e-13), square, T(1.6059043836821614599e-10));
    s = fused(fused(s, square, T(-2.5052108385441718775e-8)), square, T(2.7557319223985890653e-6));
    s = fused(fused(s, square, T(-1.9841269841269841270e-4)), square, T(8.3333333333333333333e-3));
    c = fused(T(4.7794773323873852974e-14), square, T(-1.1470745597729724714e-11));
    c = fused(fused(c, square, T(2.0876756987868098979e-9)), square, T(-2.7557319223985890653e-7));
    c = fused(fused(c, square, T(2.4801587301587301587e-5)), square, T(-1.3888888888888888889e-3));
    c = fused(c, square, T(4.1666666666666666667e-2));
  }
  s = fused(fused(s, square, T(-1.6666666666666666667e-1)), y * square, y);
  c = fused(fused(c, square, T(-0.5)), square, T(1));
  const T cosine = quarter & 1 ? -s : c, sine = quarter & 1 ? c : s;
  return quarter & 2 ? Pair<T>{-cosine, -sine} : Pair<T>{cosine, sine};
}

TL_HOST_DEVICE inline float root(float x) { return ::sqrtf(x); }
TL_HOST_DEVICE inline double root(double x) { return ::sqrt(x); }

/// Two independent standard normal numbers. Their magnitude reaches 6.7 in float, 8.5 in double.
TL_HOST_DEVICE inline Pair<float> normal_pair(std::uint32_t first, std::uint32_t second) {
  const float u = fused(static_cast<float>(first), 2.3283064365386962891e-10f, 1.1641532182693481445e-10f);
  const float radius = root(-2.0f * log_of(u));
  const std::uint32_t quarter = (second + 0x20000000u) >> 30;
  const auto [c, s] = turn(quarter, static_cast<float>(static_cast<std::int32_t>(second - (quarter << 30))) * 9.3132257461547851562e-10f);
  return {radius * c, radius * s};
}
TL_HOST_DEVICE inline Pair<double> normal_pair(std::uint64_t first, std::uint64_t second) {
  const double u = static_cast<double>((first >> 11) + 1) * 1.1102230246251565404e-16;
  const double radius = root(-2.0 * log_of(u));
  const std::uint64_t quarter = (second + 0x2000000000000000u) >> 62;
  const auto x = static_cast<double>(static_cast<std::int64_t>(second - (quarter << 62))) * 2.1684043449710088680e-19;
  const auto [c, s] = turn(static_cast<std::uint32_t>(quarter), x);
  return {radius * c, radius * s};
}

// --------------------------------------------------------------------------------------------------------------------- integers

/// A whole number in [a, a + count). Some are likelier than others by count / 2^64 at most.
TL_HOST_DEVICE inline std::int64_t integer(std::uint64_t word, std::int64_t a, std::uint64_t count) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + uniform_below(word, count));
}

// ---------------------------------------------------------------------------------------------------------- elements of a group

/// The kPerGroup<T> elements of one group of bits, as the kernel `random` defines them. Integers that T cannot hold wrap around.
template <class T> TL_HOST_DEVICE inline void elements(RandomKind kind, const PhiloxWords& words, double a, double b, T* out) {
  const std::uint64_t long0 = join(words.word[1], words.word[0]), long1 = join(words.word[3], words.word[2]);
  if constexpr (std::is_integral_v<T>) {
    const auto low = static_cast<std::int64_t>(a);
    const auto count = static_cast<std::uint64_t>(static_cast<std::int64_t>(b)) - static_cast<std::uint64_t>(low);
    out[0] = static_cast<T>(integer(long0, low, count));
    out[1] = static_cast<T>(integer(long1, low, count));
  } else if constexpr (std::is_same_v<T, double>) {
    if (kind == RandomKind::uniform) {
      out[0] = uniform(long0, a, b);
      out[1] = uniform(long1, a, b);
    } else {
      const auto [x, y] = normal_pair(long0, long1);
      out[0] = fused(x, b, a);
      out[1] = fused(y, b, a);
    }
  } else {
    const auto fa = static_cast<float>(a), fb = static_cast<float>(b);
    if (kind == RandomKind::uniform) {
      for (int i = 0; i < 4; ++i) out[i] = uniform<T>(words.word[i], fa, fb);
    } else {
      for (int i = 0; i < 4; i += 2) {
        const auto [x, y] = normal_pair(words.word[i], words.word[i + 1]);
        out[i] = T(fused(x, fb, fa));
        out[i + 1] = T(fused(y, fb, fa));
      }
    }
  }
}

// ---------------------------------------------------------------------------------------------------------------------- dropout

/// An element is dropped when its word (word i % 4 of group i / 4) is below this: p in units of 2^-32, compared as integers.
inline std::uint64_t drop_threshold(double p) { return static_cast<std::uint64_t>(p * 4294967296.0 + 0.5); }
/// 1 / (1 - p), and 0 when everything is dropped.
inline double keep_scale(double p) { return p >= 1 ? 0 : 1 / (1 - p); }

}  // namespace tensorlite::detail::draws
