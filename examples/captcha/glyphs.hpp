// Letters as the generator needs them: coverage cropped to the ink, in three sizes.
#pragma once

#include "raster.hpp"

#include <array>
#include <map>
#include <string>
#include <string_view>

namespace captcha {

/// One letter in one size, and the cell that it is drawn into.
struct Glyph {
  Picture ink;  ///< coverage 0..255
  int cell_width = 0, cell_height = 0;
};

inline constexpr int kFontSizes = 3;

class Glyphs {
 public:
  /// Draws `letters` with a font file; the space needs no entry. Throws IoError: a file that is no font or lacks a letter.
  Glyphs(const std::string& font_file, std::string_view letters);

  const Glyph& glyph(char letter, int size) const { return letters_.at(letter)[static_cast<std::size_t>(size)]; }
  /// The cell of a space, which is drawn with nothing in it.
  const Glyph& space(int size) const { return space_[static_cast<std::size_t>(size)]; }

  /// The font that the build found; "" when there was none.
  static std::string default_font();

 private:
  using Sizes = std::array<Glyph, kFontSizes>;
  std::map<char, Sizes> letters_;
  Sizes space_;
};

}  // namespace captcha
