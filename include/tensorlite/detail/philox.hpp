// Philox4x32-10: random numbers that are a function of a key and a counter, so that element i has the same value on every device and
// thread. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. Shared by g++ and nvcc.
#pragma once

#include <tensorlite/backend.hpp>

namespace tensorlite::detail {

/// Four 32-bit words of one draw.
struct PhiloxWords {
  std::uint32_t word[4];
};

/// The words of counter (low, high) under `key`: low is an element group's index, high the key's offset.
TL_HOST_DEVICE inline PhiloxWords philox(std::uint64_t low, std::uint64_t high, std::uint64_t seed) {
  std::uint32_t c0 = static_cast<std::uint32_t>(low), c1 = static_cast<std::uint32_t>(low >> 32), c2 = static_cast<std::uint32_t>(high),
                c3 = static_cast<std::uint32_t>(high >> 32), k0 = static_cast<std::uint32_t>(seed),
                k1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0, p1 = std::uint64_t{0xCD9E8D57u} * c2;
    const std::uint32_t n0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0, n2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(p1);
    c3 = static_cast<std::uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

/// Group `index` of a draw: the words of elements 4 * index to 4 * index + 3.
TL_HOST_DEVICE inline PhiloxWords philox(const PhiloxKey& key, std::uint64_t index) { return philox(index, key.offset, key.seed); }

/// In [0, 1), from 24 bits.
TL_HOST_DEVICE inline float uniform_float(std::uint32_t word) { return static_cast<float>(word >> 8) * 5.9604644775390625e-8f; }
/// In [0, 1), from 53 bits.
TL_HOST_DEVICE inline double uniform_double(std::uint32_t high, std::uint32_t low) {
  return static_cast<double>(((std::uint64_t{high} << 32) | low) >> 11) * 1.1102230246251565404e-16;
}

/// In [0, bound), by multiplication: the bias is below bound / 2^64.
TL_HOST_DEVICE inline std::uint64_t uniform_below(std::uint32_t high, std::uint32_t low, std::uint64_t bound) {
  const std::uint64_t random = (std::uint64_t{high} << 32) | low;
  const std::uint64_t r1 = random >> 32, r0 = random & 0xffffffffu, b1 = bound >> 32, b0 = bound & 0xffffffffu;
  const std::uint64_t middle = r1 * b0 + ((r0 * b0) >> 32), cross = r0 * b1 + (middle & 0xffffffffu);
  return r1 * b1 + (middle >> 32) + (cross >> 32);
}

/// Fisher-Yates: every order is equally likely, and a key always gives the same one.
template <class T> void shuffle(std::span<T> values, const PhiloxKey& key) {
  for (std::size_t i = values.size(); i > 1; --i) {
    const PhiloxWords w = philox(key, i);
    std::swap(values[i - 1], values[static_cast<std::size_t>(uniform_below(w.word[0], w.word[1], i))]);
  }
}

}  // namespace tensorlite::detail
