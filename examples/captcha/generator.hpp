// Draws captchas, as the Python package captcha 0.3 does (L. Hsiaoming, BSD licence).
#pragma once

#include "glyphs.hpp"

#include <memory>
#include <span>

namespace captcha {

inline constexpr std::string_view kLettersAndDigits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
inline constexpr std::string_view kDigits = "0123456789";

struct ImageSize {
  int width = 0, height = 0;
  std::size_t bytes() const { return static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3; }
  friend bool operator==(const ImageSize&, const ImageSize&) = default;
};

/// Numbers of images that are never drawn for two purposes.
inline constexpr std::int64_t kFirstTraining = 0, kFirstValidation = std::int64_t{1} << 40, kFirstEvaluation = std::int64_t{1} << 41;

struct Drawn {
  std::string text;
  int strip_width = 0;  ///< of all letters side by side; squeezed to fit when it is more than the picture's
};

/// Image i of a seed, for any i >= 0: the same in every thread and order. All functions may be called from many threads at once.
class Generator {
 public:
  static constexpr int kTextLength = 4;

  /// Throws ValueError for a size that the drawing rules cannot work with (below 16 x 16).
  Generator(ImageSize size, std::string_view alphabet, std::uint64_t seed, std::shared_ptr<const Glyphs> glyphs);

  ImageSize size() const { return size_; }
  const std::string& alphabet() const { return alphabet_; }
  std::string text(std::int64_t index) const;
  /// Writes height x width x 3 bytes.
  Drawn draw(std::int64_t index, std::span<std::uint8_t> out) const;

 private:
  ImageSize size_;
  std::string alphabet_;
  std::uint64_t seed_;
  std::shared_ptr<const Glyphs> glyphs_;
};

}  // namespace captcha
