// Texts as the class numbers that a network is trained with, and back.
#pragma once

#include <tensorlite/base.hpp>

#include <span>
#include <string>
#include <string_view>

namespace captcha {

/// Which class, if any, stands for no letter.
enum class Blank : std::uint8_t { none, first, last };

class Codec {
 public:
  Codec(std::string_view alphabet, Blank blank) : alphabet_(alphabet), blank_(blank) {}

  std::int64_t classes() const { return static_cast<std::int64_t>(alphabet_.size()) + (blank_ == Blank::none ? 0 : 1); }
  /// The blank's class; -1 when there is none.
  std::int64_t blank() const { return blank_ == Blank::none ? -1 : blank_ == Blank::first ? 0 : classes() - 1; }
  /// Throws ValueError for a letter that is not in the alphabet.
  std::vector<std::int64_t> encode(std::string_view text) const;
  /// Without the blank.
  std::string decode(std::span<const std::int64_t> classes) const;

 private:
  std::int64_t shift() const { return blank_ == Blank::first ? 1 : 0; }
  std::string alphabet_;
  Blank blank_;
};

/// What became of each letter of a text that was read: pairs (truth, read), with '\0' for a letter that was missed or invented. Texts of
/// one length are compared place by place, others along their shortest edit.
std::vector<std::pair<char, char>> aligned(std::string_view truth, std::string_view read);

}  // namespace captcha
