// Pictures in PNG files.
#pragma once

#include "generator.hpp"

namespace captcha {

/// Reads any PNG as RGB; what is transparent shows white. Throws IoError: not there, not a whole PNG, another size than `expected`.
Picture read_png(const std::string& path, ImageSize expected);
/// `rgb` is height x width x 3 bytes. The file is whole or as before. Throws IoError.
void write_png(const std::string& path, ImageSize size, std::span<const std::uint8_t> rgb);

}  // namespace captcha
