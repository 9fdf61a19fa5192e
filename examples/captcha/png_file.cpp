#include "png_file.hpp"

#include <tensorlite/base.hpp>

#include <png.h>

#include <filesystem>

namespace captcha {

namespace tl = tensorlite;
using tl::detail::concat;

namespace {

/// libpng's handle of one picture being read or written.
struct Png {
  png_image image = {};
  Png() { image.version = PNG_IMAGE_VERSION; }
  ~Png() { png_image_free(&image); }
  Png(const Png&) = delete;
};

}  // namespace

Picture read_png(const std::string& path, ImageSize expected) {
  const auto require = [&](bool good, const std::string& text) {
    if (!good) throw tl::IoError("read_png", path, text);
  };
  std::error_code ignored;
  require(std::filesystem::is_regular_file(path, ignored), "there is no such file");
  Png png;
  require(png_image_begin_read_from_file(&png.image, path.c_str()) != 0, concat("is not a PNG picture (", png.image.message, ")"));
  require(static_cast<int>(png.image.width) == expected.width && static_cast<int>(png.image.height) == expected.height,
          concat("is ", png.image.width, "x", png.image.height, " pixels, ", expected.width, "x", expected.height, " are expected"));
  png.image.format = PNG_FORMAT_RGB;
  Picture picture(expected.width, expected.height, 3);
  const png_color white{255, 255, 255};
  require(png_image_finish_read(&png.image, &white, picture.bytes.data(), 0, nullptr) != 0,
          concat("is a damaged PNG picture (", png.image.message, ")"));
  return picture;
}

void write_png(const std::string& path, ImageSize size, std::span<const std::uint8_t> rgb) {
  Png png;
  png.image.width = static_cast<png_uint_32>(size.width);
  png.image.height = static_cast<png_uint_32>(size.height);
  png.image.format = PNG_FORMAT_RGB;
  const std::string temporary = path + ".tmp";
  std::error_code error;
  if (!png_image_write_to_file(&png.image, temporary.c_str(), 0, rgb.data(), 0, nullptr)) {
    std::filesystem::remove(temporary, error);
    throw tl::IoError("write_png", path, png.image.message);
  }
  std::filesystem::rename(temporary, path, error);
  if (error) throw tl::IoError("write_png", path, error.message());
}

}  // namespace captcha
