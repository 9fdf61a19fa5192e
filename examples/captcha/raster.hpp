// Pictures of bytes and what the generator does to them. The arithmetic is Pillow's, which drew the published captchas.
#pragma once

#include <cstdint>
#include <vector>

namespace captcha {

struct Color {
  std::uint8_t red = 0, green = 0, blue = 0;
};

/// Rows of `channels` interleaved bytes: 1 is coverage, 3 is RGB.
struct Picture {
  int width = 0, height = 0, channels = 1;
  std::vector<std::uint8_t> bytes;

  Picture() = default;
  Picture(int w, int h, int c)
      : width(w), height(h), channels(c), bytes(static_cast<std::size_t>(w) * static_cast<std::size_t>(h) * static_cast<std::size_t>(c)) {}
  std::uint8_t* row(int y) { return bytes.data() + static_cast<std::ptrdiff_t>(y) * width * channels; }
  const std::uint8_t* row(int y) const { return bytes.data() + static_cast<std::ptrdiff_t>(y) * width * channels; }
};

struct Point {
  double x = 0, y = 0;
};
/// The corners of a quadrilateral in the source of warp().
struct Quad {
  Point north_west, south_west, south_east, north_east;
};

void fill(Picture& picture, Color color);

/// Turned counter-clockwise about the centre, bilinear, on a canvas large enough for all of it. One channel.
Picture rotated(const Picture& picture, double degrees);
/// Bicubic (a = -1/2); when shrinking the kernel widens with the scale.
Picture resized(const Picture& picture, int width, int height);
/// The quadrilateral of `picture` drawn into a rectangle: bilinear in coordinates, nearest in pixels, 0 outside. One channel.
Picture warped(const Picture& picture, const Quad& quad, int width, int height);

/// A line of width 3 from (x, y) to (x - 1, y - 1): eight pixels.
void draw_dot(Picture& picture, int x, int y, Color color);
/// An arc, one pixel thin, of the ellipse in the box (left, top)-(right, bottom); angles in degrees clockwise from three o'clock.
struct Arc {
  int left = 0, top = 0, right = 0, bottom = 0;
  int start = 0, end = 0;
};
void draw_arc(Picture& picture, const Arc& arc, Color color);

/// Each pixel becomes the mean of its 3 x 3 neighbourhood, itself counted five times. The border of one pixel stays. RGB.
void smooth(const Picture& picture, std::uint8_t* out);

}  // namespace captcha
