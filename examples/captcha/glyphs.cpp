#include "glyphs.hpp"

#include <tensorlite/base.hpp>

#include <ft2build.h>
#include FT_FREETYPE_H

#include <algorithm>
#include <filesystem>
#include <memory>

namespace captcha {

namespace tl = tensorlite;
using tl::detail::concat;

namespace {

/// Pixels, and from the ascender line to the baseline. The line is Droid Sans Mono's, which draws the same letters as Noto Mono but
/// leaves more room above them: the published captchas have its cells.
struct FontSize {
  int pixels, ascent;
};
constexpr FontSize kSizes[kFontSizes] = {{42, 45}, {50, 53}, {56, 60}};

/// Throws unless `good`.
void require(bool good, const std::string& file, const std::string& text) {
  if (!good) throw tl::IoError("font", file, text);
}

struct Library {
  FT_Library handle = nullptr;
  Library() { require(FT_Init_FreeType(&handle) == 0, "FreeType", "does not start"); }
  ~Library() { FT_Done_FreeType(handle); }
  Library(const Library&) = delete;
};

class Face {
 public:
  Face(const Library& library, const std::string& file) : file_(file) {
    require(!file.empty(), file, "no font was found when this program was built; name a font file with --font");
    std::error_code ignored;
    require(std::filesystem::is_regular_file(file, ignored), file,
            "is not there; install the package fonts-noto-mono or name a font file with --font");
    require(FT_New_Face(library.handle, file.c_str(), 0, &face_) == 0, file, "is not a font that FreeType can read");
  }
  ~Face() { FT_Done_Face(face_); }
  Face(const Face&) = delete;

  Glyph draw(char letter, const FontSize& size) const {
    const FT_UInt index = FT_Get_Char_Index(face_, static_cast<FT_ULong>(letter));
    require(index != 0, file_, concat("has no letter '", letter, "'"));
    require(FT_Set_Pixel_Sizes(face_, 0, static_cast<FT_UInt>(size.pixels)) == 0 &&
                FT_Load_Glyph(face_, index, FT_LOAD_DEFAULT | FT_LOAD_NO_BITMAP) == 0 &&
                FT_Render_Glyph(face_->glyph, FT_RENDER_MODE_NORMAL) == 0,
            file_, concat("letter '", letter, "' cannot be drawn with ", size.pixels, " pixels"));
    return from_slot(size);
  }

 private:
  Glyph from_slot(const FontSize& size) const {
    const FT_GlyphSlot slot = face_->glyph;
    const FT_Bitmap& bitmap = slot->bitmap;
    const int rows = static_cast<int>(bitmap.rows), columns = static_cast<int>(bitmap.width);
    Glyph glyph;
    glyph.cell_width = std::max(static_cast<int>(slot->advance.x >> 6), slot->bitmap_left + columns);
    glyph.cell_height = size.ascent + std::max(rows - slot->bitmap_top, 0);
    Picture whole(columns, rows, 1);
    for (int y = 0; y < rows; ++y) std::copy_n(bitmap.buffer + y * bitmap.pitch, columns, whole.row(y));
    glyph.ink = cropped(whole);
    return glyph;
  }
  /// Without empty rows and columns around.
  static Picture cropped(const Picture& whole) {
    int left = whole.width, right = 0, top = whole.height, bottom = 0;
    for (int y = 0; y < whole.height; ++y)
      for (int x = 0; x < whole.width; ++x)
        if (whole.row(y)[x]) {
          left = std::min(left, x), right = std::max(right, x + 1);
          top = std::min(top, y), bottom = std::max(bottom, y + 1);
        }
    if (left >= right) return {};
    Picture part(right - left, bottom - top, 1);
    for (int y = 0; y < part.height; ++y) std::copy_n(whole.row(top + y) + left, part.width, part.row(y));
    return part;
  }

  std::string file_;
  FT_Face face_ = nullptr;
};

}  // namespace

Glyphs::Glyphs(const std::string& font_file, std::string_view letters) {
  const Library library;
  const Face face(library, font_file);
  for (std::size_t s = 0; s < kFontSizes; ++s) {
    for (const char letter : letters) {
      Glyph& glyph = letters_[letter][s] = face.draw(letter, kSizes[s]);
      require(glyph.ink.width > 0, font_file, concat("letter '", letter, "' is empty"));
    }
    space_[s] = face.draw(' ', kSizes[s]);
  }
}

std::string Glyphs::default_font() { return TENSORLITE_CAPTCHA_FONT; }

}  // namespace captcha
