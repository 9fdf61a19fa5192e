#include "report_charts.hpp"

#include <zlib.h>

namespace tensorlite::report {

namespace {

using detail::concat;
using Bytes = std::string;

Bytes big_endian(std::uint32_t value) {
  Bytes bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xff);
  return bytes;
}

const Bytef* zlib_bytes(const Bytes& bytes) { return reinterpret_cast<const Bytef*>(bytes.data()); }

/// Length, type, data, checksum of type and data.
Bytes chunk(const char* type, const Bytes& data) {
  const Bytes body = type + data;
  const auto checksum = crc32(0, zlib_bytes(body), static_cast<uInt>(body.size()));
  return big_endian(static_cast<std::uint32_t>(data.size())) + body + big_endian(static_cast<std::uint32_t>(checksum));
}

Bytes deflated(const Bytes& data) {
  uLongf size = compressBound(static_cast<uLong>(data.size()));
  Bytes packed(size, '\0');
  const int status =
      compress2(reinterpret_cast<Bytef*>(packed.data()), &size, zlib_bytes(data), static_cast<uLong>(data.size()), Z_BEST_COMPRESSION);
  TL_CHECK(status == Z_OK, Error, "report", "zlib cannot pack a picture of ", data.size(), " bytes: status ", status);
  packed.resize(size);
  return packed;
}

/// 8 bits of red, green and blue, rows unfiltered. Source: PNG specification, second edition.
Bytes png(const Picture& picture) {
  const auto row = static_cast<std::size_t>(picture.width * 3);
  Bytes rows;
  for (std::int64_t y = 0; y < picture.height; ++y) {
    rows += '\0';
    rows.append(reinterpret_cast<const char*>(picture.rgb.data()) + static_cast<std::size_t>(y) * row, row);
  }
  const Bytes size = big_endian(static_cast<std::uint32_t>(picture.width)) + big_endian(static_cast<std::uint32_t>(picture.height));
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", size + Bytes("\x08\x02\0\0\0", 5)) + chunk("IDAT", deflated(rows)) + chunk("IEND", "");
}

std::string base64(const Bytes& bytes) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t j = i; j < i + 3; ++j) group = group << 8 | (j < bytes.size() ? static_cast<unsigned char>(bytes[j]) : 0u);
    for (int shift = 18; shift >= 0; shift -= 6) text += digits[group >> shift & 63];
  }
  for (std::size_t padding = (3 - bytes.size() % 3) % 3; padding > 0; --padding) text[text.size() - padding] = '=';
  return text;
}

}  // namespace

std::string picture_png(const Picture& picture) {
  const bool fits = picture.height > 0 && picture.width > 0 && picture.height <= (1 << 20) && picture.width <= (1 << 20) &&
                    static_cast<std::int64_t>(picture.rgb.size()) == picture.height * picture.width * 3;
  TL_CHECK(fits, ValueError, "report", "a picture of ", picture.width, "x", picture.height, " pixels has ", picture.rgb.size(),
           " bytes; expected three for each pixel");
  return concat("<img width=\"", picture.width, "\" height=\"", picture.height, "\" alt=\"", escaped(picture.caption),
                "\" src=\"data:image/png;base64,", base64(png(picture)), "\"/>");
}

}  // namespace tensorlite::report
