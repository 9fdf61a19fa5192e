#include "generator.hpp"

#include "draws.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace captcha {

namespace {

constexpr int kDots = 30;

/// One ink draws everything on one background.
struct Colors {
  Color background, ink;
  std::uint8_t alpha = 255;  ///< of the letters' ink; it only moves their faintest edges
};

Colors draw_colors(Draws& draws) {
  const auto channel = [&](int low, int high) { return static_cast<std::uint8_t>(draws.integer(low, high)); };
  Colors colors;
  for (std::uint8_t* c : {&colors.background.red, &colors.background.green, &colors.background.blue}) *c = channel(238, 255);
  for (std::uint8_t* c : {&colors.ink.red, &colors.ink.green, &colors.ink.blue}) *c = channel(10, 200);
  colors.alpha = channel(220, 255);
  return colors;
}

std::string draw_text(Draws& draws, const std::string& alphabet) {
  std::string text;
  for (int i = 0; i < Generator::kTextLength; ++i)
    text += alphabet[static_cast<std::size_t>(draws.integer(0, static_cast<int>(alphabet.size()) - 1))];
  return text;
}

/// The letter turned and warped into its cell: coverage.
Picture draw_cell(const Glyph& glyph, Draws& draws) {
  const int w = glyph.cell_width, h = glyph.cell_height;
  const Picture turned = rotated(glyph.ink, draws.real(-30, 30));
  const double dx = w * draws.real(0.1, 0.3), dy = h * draws.real(0.2, 0.3);
  const auto shift = [&](double most) { return static_cast<int>(draws.real(-most, most)); };
  const int x1 = shift(dx), y1 = shift(dy), x2 = shift(dx), y2 = shift(dy);
  const int w2 = w + std::abs(x1) + std::abs(x2), h2 = h + std::abs(y1) + std::abs(y2);
  const auto point = [](int x, int y) { return Point{static_cast<double>(x), static_cast<double>(y)}; };
  return warped(resized(turned, w2, h2), {point(x1, y1), point(-x1, h2 - y2), point(w2 + x2, h2 + y2), point(w2 - x2, -y1)}, w, h);
}

/// All cells of a text from left to right. A space has no picture.
struct Cell {
  int width = 0, height = 0;
  Picture coverage;
};

std::vector<Cell> draw_cells(const std::string& text, const Glyphs& glyphs, Draws& draws) {
  std::vector<Cell> cells;
  for (const char letter : text) {
    if (draws.coin()) {
      const Glyph& space = glyphs.space(draws.integer(0, kFontSizes - 1));
      cells.push_back({space.cell_width, space.cell_height, {}});
    }
    const Glyph& glyph = glyphs.glyph(letter, draws.integer(0, kFontSizes - 1));
    cells.push_back({glyph.cell_width, glyph.cell_height, draw_cell(glyph, draws)});
  }
  return cells;
}

/// x / 255, rounded.
int by_255(int x) {
  x += 128;
  return (x + (x >> 8)) >> 8;
}

/// What a pixel of some coverage adds to the picture: a colour, and how much of it. Faint edges keep the ink's colour as well as bytes
/// can that were multiplied by a small alpha and divided by it again; opacity follows from the colour's brightness alone.
struct Paint {
  int red = 0, green = 0, blue = 0, opacity = 0;
};
using Palette = std::array<Paint, 256>;

Palette make_palette(const Colors& colors) {
  Palette palette;
  for (int coverage = 0; coverage < 256; ++coverage) {
    const int alpha = by_255(coverage * colors.alpha);
    const auto stored = [&](int c) { return alpha == 0 ? 0 : std::min(255, 255 * by_255(c * alpha) / alpha); };
    Paint& paint = palette[static_cast<std::size_t>(coverage)];
    paint = {stored(colors.ink.red), stored(colors.ink.green), stored(colors.ink.blue), 0};
    const int brightness = (19595 * paint.red + 38470 * paint.green + 7471 * paint.blue + 0x8000) >> 16;
    paint.opacity = std::min(255, static_cast<int>(1.97 * brightness));
  }
  return palette;
}

void paste(Picture& canvas, const Cell& cell, int left, int top, const Palette& palette) {
  const int first = std::max(0, -left), last = std::min(cell.width, canvas.width - left);
  for (int y = std::max(0, -top); y < std::min(cell.height, canvas.height - top); ++y) {
    const std::uint8_t* coverage = cell.coverage.row(y);
    std::uint8_t* out = canvas.row(top + y) + 3 * left;
    for (int x = first; x < last; ++x) {
      if (coverage[x] == 0) continue;
      const Paint& paint = palette[coverage[x]];
      const auto blend = [&](std::uint8_t& under, int over) {
        under = static_cast<std::uint8_t>(by_255(over * paint.opacity + under * (255 - paint.opacity)));
      };
      blend(out[3 * x], paint.red);
      blend(out[3 * x + 1], paint.green);
      blend(out[3 * x + 2], paint.blue);
    }
  }
}

Arc draw_arc_shape(ImageSize size, Draws& draws) {
  const int w = size.width, h = size.height;
  Arc arc;
  arc.left = draws.integer(0, w / 5);
  arc.right = draws.integer(w - w / 5, w);
  arc.top = draws.integer(h / 5, h - h / 5);
  arc.bottom = draws.integer(arc.top, h - h / 5);
  arc.end = draws.integer(160, 200);
  arc.start = draws.integer(0, 20);
  return arc;
}

}  // namespace

Generator::Generator(ImageSize size, std::string_view alphabet, std::uint64_t seed, std::shared_ptr<const Glyphs> glyphs)
    : size_(size), alphabet_(alphabet), seed_(seed), glyphs_(std::move(glyphs)) {
  TL_CHECK(size.width >= 16 && size.height >= 16, ValueError, "Generator", "a picture of ", size.width, "x", size.height,
           " is too small, 16x16 is the least");
}

std::string Generator::text(std::int64_t index) const {
  Draws draws(seed_, static_cast<std::uint64_t>(index));
  return draw_text(draws, alphabet_);
}

Drawn Generator::draw(std::int64_t index, std::span<std::uint8_t> out) const {
  TL_CHECK(out.size() == size_.bytes(), ValueError, "draw", "room for ", out.size(), " bytes, a picture has ", size_.bytes());
  Draws draws(seed_, static_cast<std::uint64_t>(index));
  Drawn drawn{draw_text(draws, alphabet_), 0};
  const Colors colors = draw_colors(draws);
  const Palette palette = make_palette(colors);
  const std::vector<Cell> cells = draw_cells(drawn.text, *glyphs_, draws);
  for (const Cell& cell : cells) drawn.strip_width += cell.width;

  Picture canvas(std::max(drawn.strip_width, size_.width), size_.height, 3);
  fill(canvas, colors.background);
  const int average = drawn.strip_width / kTextLength;
  int x = static_cast<int>(0.1 * average);
  for (const Cell& cell : cells) {
    if (!cell.coverage.bytes.empty()) paste(canvas, cell, x, (size_.height - cell.height) / 2, palette);
    x += cell.width + draws.integer(-static_cast<int>(0.25 * average), 0);
  }
  canvas = resized(canvas, size_.width, size_.height);

  for (int i = 0; i < kDots; ++i) {
    const int left = draws.integer(0, size_.width), top = draws.integer(0, size_.height);
    draw_dot(canvas, left, top, colors.ink);
  }
  draw_arc(canvas, draw_arc_shape(size_, draws), colors.ink);
  smooth(canvas, out.data());
  return drawn;
}

}  // namespace captcha
