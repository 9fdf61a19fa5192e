// The captcha generator: its pictures' statistics against those of the rules, its random numbers, its files.
#include "generator.hpp"
#include "png_file.hpp"

#include <tensorlite/base.hpp>

#include "catch.hpp"
#include "temp_folder.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <sys/wait.h>
#include <thread>

using namespace captcha;
namespace tl = tensorlite;
using Catch::Matchers::ContainsSubstring;

namespace {

std::shared_ptr<const Glyphs> glyphs() {
  static const auto shared = std::make_shared<const Glyphs>(Glyphs::default_font(), kLettersAndDigits);
  return shared;
}

Generator generator(ImageSize size, std::uint64_t seed = 1) { return Generator(size, kLettersAndDigits, seed, glyphs()); }

std::vector<std::uint8_t> image(const Generator& g, std::int64_t index) {
  std::vector<std::uint8_t> rgb(g.size().bytes());
  g.draw(index, rgb);
  return rgb;
}

struct Result {
  int exit_code = -1;
  std::string out, error;
};
Result run(const TempFolder& folder, const std::string& arguments) {
  const std::string out = folder / "stdout", error = folder / "stderr";
  const int status = std::system(("timeout 300 " TENSORLITE_CAPTCHA " " + arguments + " >" + out + " 2>" + error).c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, file_bytes(out), file_bytes(error)};
}

double sum(const Picture& picture) { return std::accumulate(picture.bytes.begin(), picture.bytes.end(), 0.0); }

}  // namespace

TEST_CASE("mean, deviation and share of squeezed strips are those of the published captchas") {
  struct Case {
    ImageSize size;
    double mean, deviation, squeezed;
  };
  constexpr int kCount = 1500;
  for (const Case& c : {Case{{128, 64}, 0.865, 0.177, 0.93}, Case{{192, 64}, 0.880, 0.170, 0.30}}) {
    const Generator g = generator(c.size);
    std::vector<std::uint8_t> rgb(c.size.bytes());
    double total = 0, squares = 0;
    int squeezed = 0;
    for (int i = 0; i < kCount; ++i) {
      squeezed += g.draw(i, rgb).strip_width > c.size.width;
      for (const double v : rgb) total += v / 255, squares += v * v / (255 * 255);
    }
    const double n = kCount * static_cast<double>(rgb.size()), mean = total / n;
    INFO(c.size.width << "x" << c.size.height);
    CHECK(mean == Approx(c.mean).margin(0.003));
    CHECK(std::sqrt(squares / n - mean * mean) == Approx(c.deviation).margin(0.002));
    CHECK(squeezed / double(kCount) == Approx(c.squeezed).margin(0.03));
  }
}

TEST_CASE("letters have the published cells: widths of their advance, heights from the ascender line to the ink's bottom") {
  struct Cell {
    char letter;
    int width[3], height[3];
  };
  for (const Cell& cell : {Cell{'E', {25, 30, 34}, {45, 53, 60}}, Cell{'Q', {25, 30, 34}, {53, 63, 72}}})
    for (int s = 0; s < kFontSizes; ++s) {
      CHECK(glyphs()->glyph(cell.letter, s).cell_width == cell.width[s]);
      CHECK(glyphs()->glyph(cell.letter, s).cell_height == cell.height[s]);
    }
  CHECK(glyphs()->space(0).cell_width == 25);
  CHECK(glyphs()->glyph('1', 0).ink.width == 12);  // cropped to the ink: 12 x 30 of 25 x 30
  CHECK(glyphs()->glyph('1', 0).ink.height == 30);
}

TEST_CASE("image i is the same in any thread and order, and another one for another index or seed") {
  const Generator g = generator({192, 64});
  constexpr int kCount = 40;
  std::vector<std::vector<std::uint8_t>> alone, together(kCount);
  for (int i = 0; i < kCount; ++i) alone.push_back(image(g, i));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = kCount - 1 - t; i >= 0; i -= 4) together[static_cast<std::size_t>(i)] = image(g, i);
    });
  for (auto& thread : threads) thread.join();
  CHECK(together == alone);
  std::sort(alone.begin(), alone.end());
  CHECK(std::unique(alone.begin(), alone.end()) == alone.end());
  CHECK(image(g, 3) != image(generator({192, 64}, 2), 3));
  CHECK(image(g, kFirstValidation) != image(g, kFirstEvaluation));
}

TEST_CASE("texts: four letters, every letter equally often at every place, the same whether drawn or not") {
  const Generator g = generator({128, 64});
  constexpr int kCount = 36000;
  std::vector<std::vector<int>> counts(Generator::kTextLength, std::vector<int>(256));
  for (int i = 0; i < kCount; ++i) {
    const std::string text = g.text(i);
    REQUIRE(text.size() == 4);
    for (std::size_t p = 0; p < 4; ++p) ++counts[p][static_cast<unsigned char>(text[p])];
  }
  for (const auto& place : counts) {
    double chi_square = 0;
    int seen = 0;
    for (const char letter : kLettersAndDigits) {
      const double difference = place[static_cast<unsigned char>(letter)] - kCount / 36.0;
      chi_square += difference * difference / (kCount / 36.0);
      seen += place[static_cast<unsigned char>(letter)];
    }
    CHECK(seen == kCount);
    CHECK(chi_square < 66.6);  // 35 degrees of freedom: more than this once in a thousand times
    CHECK(chi_square > 12);
  }
  std::vector<std::uint8_t> rgb(g.size().bytes());
  for (int i = 0; i < 50; ++i) CHECK(g.draw(i, rgb).text == g.text(i));
}

TEST_CASE("turning, resizing and warping keep what they should") {
  const Picture& letter = glyphs()->glyph('B', 1).ink;
  CHECK(rotated(letter, 0).bytes == letter.bytes);
  CHECK(resized(letter, letter.width, letter.height).bytes == letter.bytes);
  const Picture turned = rotated(letter, 30);
  CHECK(turned.width == Approx((letter.width * std::sqrt(3.0) + letter.height) / 2).margin(2));  // at whole pixels
  CHECK(sum(turned) == Approx(sum(letter)).epsilon(0.03));
  const Picture large = resized(letter, 3 * letter.width, 2 * letter.height);
  CHECK(large.width == 3 * letter.width);
  CHECK(sum(large) == Approx(6 * sum(letter)).epsilon(0.02));
  CHECK(sum(resized(large, letter.width, letter.height)) == Approx(sum(letter)).epsilon(0.02));
  const double w = letter.width, h = letter.height;
  CHECK(warped(letter, {{0, 0}, {0, h}, {w, h}, {w, 0}}, letter.width, letter.height).bytes == letter.bytes);
  const Picture mirrored = warped(letter, {{w, 0}, {w, h}, {0, h}, {0, 0}}, letter.width, letter.height);
  CHECK(mirrored.row(3)[0] == letter.row(3)[letter.width - 1]);
  CHECK(sum(warped(letter, {{-w, 0}, {-w, h}, {0, h}, {0, 0}}, letter.width, letter.height)) == 0);  // all outside

  Picture gray(20, 10, 3);
  fill(gray, {200, 100, 7});
  CHECK(resized(gray, 11, 10).bytes == std::vector<std::uint8_t>(gray.bytes.begin(), gray.bytes.begin() + 11 * 10 * 3));
  std::vector<std::uint8_t> smoothed(gray.bytes.size());
  smooth(gray, smoothed.data());
  CHECK(smoothed == gray.bytes);
}

TEST_CASE("dots have eight pixels, arcs are one pixel thin, and smoothing spreads a point over its neighbours") {
  Picture canvas(40, 30, 3);
  draw_dot(canvas, 20, 15, {255, 0, 0});
  CHECK(sum(canvas) == 8 * 255);
  draw_dot(canvas, 0, 0, {255, 0, 0});  // in the corner only one of them is inside
  CHECK(sum(canvas) == 9 * 255);
  std::vector<std::uint8_t> smoothed(canvas.bytes.size());
  Picture point(5, 5, 3);
  point.row(2)[3 * 2] = 130;
  smooth(point, smoothed.data());
  CHECK(smoothed[(2 * 5 + 2) * 3] == 50);
  CHECK(smoothed[(1 * 5 + 1) * 3] == 10);
  CHECK(std::accumulate(smoothed.begin(), smoothed.begin() + 75, 0) == 130);

  Picture arc(100, 60, 3);
  draw_arc(arc, {10, 10, 90, 50, 0, 180}, {0, 0, 1});
  std::vector<int> per_column(100);
  for (int y = 0; y < 60; ++y)
    for (int x = 0; x < 100; ++x) {
      per_column[static_cast<std::size_t>(x)] += arc.row(y)[3 * x + 2];
      if (y < 30) CHECK(arc.row(y)[3 * x + 2] == 0);  // the lower half only
    }
  for (std::size_t x = 30; x <= 70; ++x) CHECK(per_column[x] == 1);
  CHECK(arc.row(50)[3 * 50 + 2] == 1);
  CHECK(arc.row(30)[3 * 10 + 2] == 1);
  CHECK(arc.row(30)[3 * 90 + 2] == 1);
}

TEST_CASE("PNG files: what was written comes back, what is no such picture is refused in one sentence") {
  const TempFolder folder;
  const Generator g = generator({128, 64});
  const auto rgb = image(g, 5);
  const std::string path = folder / "a.png";
  write_png(path, g.size(), rgb);
  CHECK(read_png(path, g.size()).bytes == rgb);
  CHECK(folder.file_count() == 1);
  const auto error = [&](const std::string& file, ImageSize size) { return error_text<tl::IoError>([&] { read_png(file, size); }); };
  CHECK_THAT(error(path, {192, 64}), ContainsSubstring("a.png") && ContainsSubstring("is 128x64 pixels, 192x64 are expected"));
  CHECK_THAT(error(folder / "none.png", g.size()), ContainsSubstring("there is no such file"));
  CHECK_THAT(error(folder.path(), g.size()), ContainsSubstring("there is no such file"));
  const std::string bytes = file_bytes(path);
  CHECK_THAT(error(folder.write("half.png", bytes.substr(0, bytes.size() / 2)), g.size()), ContainsSubstring("is a damaged PNG"));
  CHECK_THAT(error(folder.write("text.png", "not a picture"), g.size()), ContainsSubstring("is not a PNG picture"));
  CHECK_THAT(error(folder.write("empty.png", ""), g.size()), ContainsSubstring("is not a PNG picture"));
  CHECK_THAT(error_text<tl::IoError>([&] { write_png(folder / "none/a.png", g.size(), rgb); }), ContainsSubstring("none/a.png"));
}

TEST_CASE("fonts that are none, pictures that are too small") {
  const TempFolder folder;
  CHECK_THAT(error_text<tl::IoError>([&] { Glyphs(folder / "none.ttf", "A"); }),
             ContainsSubstring("none.ttf") && ContainsSubstring("fonts-noto-mono"));
  CHECK_THAT(error_text<tl::IoError>([&] { Glyphs(folder.write("text.ttf", "text"), "A"); }), ContainsSubstring("is not a font"));
  CHECK_THAT(error_text<tl::IoError>([&] { Glyphs(Glyphs::default_font(), "\x01"); }), ContainsSubstring("has no letter"));
  CHECK_THAT(error_text<tl::ValueError>([&] { generator({8, 64}); }), ContainsSubstring("8x64 is too small"));
}

TEST_CASE("captcha generate: pictures and labels, the same for any number of threads") {
  const TempFolder folder;
  const auto result = run(folder, "generate --count 12 --size 192x64 --seed 3 --threads 1 --out " + (folder / "a"));
  INFO(result.error);
  REQUIRE(result.exit_code == 0);
  CHECK_THAT(result.out, ContainsSubstring("12 captchas of 192x64"));
  REQUIRE(run(folder, "generate --count 12 --size 192x64 --seed 3 --threads 3 --out " + (folder / "b")).exit_code == 0);
  const Generator g = generator({192, 64}, 3);
  std::string labels = "file,text\n";
  for (int i = 0; i < 12; ++i) {
    const std::string name = "0000" + std::string(i < 10 ? "0" : "") + std::to_string(i) + ".png";
    CHECK(read_png(folder / ("a/" + name), g.size()).bytes == image(g, i));
    CHECK(file_bytes(folder / ("a/" + name)) == file_bytes(folder / ("b/" + name)));
    labels += name + "," + g.text(i) + "\n";
  }
  CHECK(file_bytes(folder / "a/labels.csv") == labels);
  CHECK(file_bytes(folder / "b/labels.csv") == labels);
}

TEST_CASE("captcha generate: bad arguments are exit code 2 and one sentence, failures exit code 1") {
  const TempFolder folder;
  const std::string out = " --out " + (folder / "a");
  const std::pair<std::string, const char*> cases[] = {{"generate" + out, "--count"},
                                                       {"generate --count 3", "--out"},
                                                       {"generate --count 0" + out, "--count must be positive, it is 0"},
                                                       {"generate --count three" + out, "--count"},
                                                       {"generate --count 3 --size 128" + out, "--size must be WIDTHxHEIGHT"},
                                                       {"generate --count 3 --size 128x" + out, "it is '128x'"},
                                                       {"generate --count 3 --size 8x64" + out, "each from 16 to 4096"},
                                                       {"generate --count 3 --seed -1" + out, "--seed must not be negative"},
                                                       {"generate --count 3 --threads -1" + out, "--threads must be positive"},
                                                       {"", "subcommand"},
                                                       {"draw", "subcommand"}};
  for (const auto& [arguments, text] : cases) {
    const auto result = run(folder, arguments);
    INFO(arguments << ": " << result.error);
    CHECK(result.exit_code == 2);
    CHECK(result.out.empty());
    CHECK_THAT(result.error, Catch::Matchers::StartsWith("captcha: ") && ContainsSubstring(text));
    CHECK(std::count(result.error.begin(), result.error.end(), '\n') == 1);
  }
  CHECK(run(folder, "generate --help").exit_code == 0);
  folder.write("file", "x");
  const auto blocked = run(folder, "generate --count 3 --out " + (folder / "file"));
  CHECK(blocked.exit_code == 1);
  CHECK_THAT(blocked.error, ContainsSubstring(folder / "file"));
  const auto font = run(folder, "generate --count 3 --font " + (folder / "none.ttf") + out);
  CHECK(font.exit_code == 1);
  CHECK_THAT(font.error, ContainsSubstring("none.ttf"));
}
