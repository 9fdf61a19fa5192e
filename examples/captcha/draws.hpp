// The random numbers of one image.
#pragma once

#include <tensorlite/detail/philox.hpp>

namespace captcha {

/// A sequence of draws that follows from seed and image index alone: Philox with the index in the upper half of its counter.
class Draws {
 public:
  Draws(std::uint64_t seed, std::uint64_t index) : seed_(seed), index_(index) {}

  /// In a..b, both included.
  int integer(int a, int b) { return a + static_cast<int>(std::uint64_t{word()} * static_cast<std::uint64_t>(b - a + 1) >> 32); }
  /// In [a, b).
  double real(double a, double b) { return a + (b - a) * (word() * 0x1p-32); }
  bool coin() { return (word() & 1u) != 0; }

 private:
  std::uint32_t word() {
    if (used_ == 4) {
      words_ = tensorlite::detail::philox(group_++, index_, seed_);
      used_ = 0;
    }
    return words_.word[used_++];
  }

  std::uint64_t seed_, index_, group_ = 0;
  tensorlite::detail::PhiloxWords words_ = {};
  int used_ = 4;
};

}  // namespace captcha
