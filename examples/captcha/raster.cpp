#include "raster.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace captcha {

namespace {

void set_pixel(Picture& picture, int x, int y, Color color) {
  if (x < 0 || y < 0 || x >= picture.width || y >= picture.height) return;
  std::uint8_t* pixel = picture.row(y) + 3 * x;
  pixel[0] = color.red;
  pixel[1] = color.green;
  pixel[2] = color.blue;
}

std::uint8_t to_byte(float value) { return static_cast<std::uint8_t>(std::clamp(value + 0.5f, 0.0f, 255.0f)); }

}  // namespace

void fill(Picture& picture, Color color) {
  std::uint8_t* pixel = picture.bytes.data();
  for (int i = picture.width * picture.height; i > 0; --i, pixel += 3) {
    pixel[0] = color.red;
    pixel[1] = color.green;
    pixel[2] = color.blue;
  }
}

// --------------------------------------------------------------------------------------------------------------------- rotation

namespace {

/// x' = a x + b y + c, y' = -b x + a y + d: from the turned canvas to the picture.
struct Rotation {
  double a, b, c, d;
  Point operator()(double x, double y) const { return {a * x + b * y + c, a * y - b * x + d}; }
};

/// Bilinear between pixel centres; beyond the outermost centres the edge goes on, beyond the picture there is nothing.
std::uint8_t sample(const Picture& picture, Point at) {
  if (at.x < 0 || at.y < 0 || at.x >= picture.width || at.y >= picture.height) return 0;
  const auto x = static_cast<float>(at.x) + 0.5f, y = static_cast<float>(at.y) + 0.5f;  // one more than the pixel left of and above it
  const int right = static_cast<int>(x), below = static_cast<int>(y);
  const float dx = x - static_cast<float>(right), dy = y - static_cast<float>(below);
  const int x0 = std::max(right - 1, 0), x1 = std::min(right, picture.width - 1);
  const std::uint8_t* upper = picture.row(std::max(below - 1, 0));
  const std::uint8_t* lower = picture.row(std::min(below, picture.height - 1));
  const float u = upper[x0] + dx * static_cast<float>(upper[x1] - upper[x0]),
              l = lower[x0] + dx * static_cast<float>(lower[x1] - lower[x0]);
  return static_cast<std::uint8_t>(u + dy * (l - u));
}

}  // namespace

Picture rotated(const Picture& picture, double degrees) {
  const double angle = degrees * std::numbers::pi / 180, w = picture.width, h = picture.height;
  Rotation turn{std::cos(angle), -std::sin(angle), 0, 0};
  const Point moved = turn(w / 2, h / 2);
  turn.c = w / 2 - moved.x;
  turn.d = h / 2 - moved.y;
  const Point corners[] = {turn(0, 0), turn(w, 0), turn(w, h), turn(0, h)};
  const auto extent = [&](double Point::*axis) {
    double low = corners[0].*axis, high = low;
    for (const Point& corner : corners) low = std::min(low, corner.*axis), high = std::max(high, corner.*axis);
    return static_cast<int>(std::ceil(high) - std::floor(low));
  };
  Picture out(extent(&Point::x), extent(&Point::y), 1);
  const Point origin = turn(-(out.width - w) / 2, -(out.height - h) / 2);
  turn.c = origin.x;
  turn.d = origin.y;
  for (int y = 0; y < out.height; ++y) {
    std::uint8_t* row = out.row(y);
    for (int x = 0; x < out.width; ++x) row[x] = sample(picture, turn(x + 0.5, y + 0.5));
  }
  return out;
}

// --------------------------------------------------------------------------------------------------------------------- resizing

namespace {

/// The inputs of each output along one axis: `taps` weights from input `first[i]` on, 0 where fewer count.
struct Weights {
  int taps = 0;
  std::vector<int> first;
  std::vector<float> values;
};

double cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

Weights weights(int in, int out) {
  const double scale = static_cast<double>(in) / out, stretch = std::max(scale, 1.0), support = 2 * stretch;
  Weights w;
  w.taps = std::min(static_cast<int>(std::ceil(support)) * 2 + 1, in);
  w.first.resize(static_cast<std::size_t>(out));
  w.values.assign(static_cast<std::size_t>(out * w.taps), 0);
  for (int i = 0; i < out; ++i) {
    const double center = (i + 0.5) * scale;
    const int begin = std::max(static_cast<int>(center - support + 0.5), 0), end = std::min(static_cast<int>(center + support + 0.5), in);
    const int first = std::min(begin, in - w.taps);
    float* values = w.values.data() + i * w.taps + (begin - first);
    double sum = 0;
    for (int j = begin; j < end; ++j) sum += cubic((j - center + 0.5) / stretch);
    for (int j = begin; j < end; ++j) values[j - begin] = static_cast<float>(cubic((j - center + 0.5) / stretch) / sum);
    w.first[static_cast<std::size_t>(i)] = first;
  }
  return w;
}

template <int kChannels> void resize_row(const std::uint8_t* in, const Weights& w, std::uint8_t* out) {
  const float* values = w.values.data();
  for (const int first : w.first) {
    float sum[kChannels] = {};
    const std::uint8_t* pixel = in + first * kChannels;
    for (int t = 0; t < w.taps; ++t, pixel += kChannels)
      for (int c = 0; c < kChannels; ++c) sum[c] += values[t] * static_cast<float>(pixel[c]);
    for (int c = 0; c < kChannels; ++c) *out++ = to_byte(sum[c]);
    values += w.taps;
  }
}

Picture resized_across(const Picture& picture, int width) {
  const Weights w = weights(picture.width, width);
  Picture out(width, picture.height, picture.channels);
  for (int y = 0; y < picture.height; ++y) (picture.channels == 1 ? resize_row<1> : resize_row<3>)(picture.row(y), w, out.row(y));
  return out;
}

Picture resized_down(const Picture& picture, int height) {
  const Weights w = weights(picture.height, height);
  Picture out(picture.width, height, picture.channels);
  const int length = picture.width * picture.channels;
  std::vector<float> sum(static_cast<std::size_t>(length));
  for (int y = 0; y < height; ++y) {
    std::fill(sum.begin(), sum.end(), 0.0f);
    for (int t = 0; t < w.taps; ++t) {
      const float weight = w.values[static_cast<std::size_t>(y * w.taps + t)];
      const std::uint8_t* in = picture.row(w.first[static_cast<std::size_t>(y)] + t);
      for (int i = 0; i < length; ++i) sum[static_cast<std::size_t>(i)] += weight * static_cast<float>(in[i]);
    }
    std::uint8_t* row = out.row(y);
    for (int i = 0; i < length; ++i) row[i] = to_byte(sum[static_cast<std::size_t>(i)]);
  }
  return out;
}

}  // namespace

Picture resized(const Picture& picture, int width, int height) {
  if (height == picture.height) return width == picture.width ? picture : resized_across(picture, width);
  if (width == picture.width) return resized_down(picture, height);
  return resized_down(resized_across(picture, width), height);
}

// ------------------------------------------------------------------------------------------------------------------- warp, drawing

Picture warped(const Picture& picture, const Quad& q, int width, int height) {
  Picture out(width, height, 1);
  const auto [nw, sw, se, ne] = q;
  const double across = 1.0 / width, down = 1.0 / height;
  const Point dx{(ne.x - nw.x) * across, (ne.y - nw.y) * across}, dy{(sw.x - nw.x) * down, (sw.y - nw.y) * down};
  const Point dxy{(se.x - sw.x - ne.x + nw.x) * across * down, (se.y - sw.y - ne.y + nw.y) * across * down};
  for (int j = 0; j < height; ++j) {
    const double v = j + 0.5;
    const Point start{nw.x + dy.x * v, nw.y + dy.y * v}, step{dx.x + dxy.x * v, dx.y + dxy.y * v};
    std::uint8_t* row = out.row(j);
    for (int i = 0; i < width; ++i) {
      const double u = i + 0.5, x = start.x + step.x * u, y = start.y + step.y * u;
      if (x >= 0 && y >= 0 && x < picture.width && y < picture.height) row[i] = picture.row(static_cast<int>(y))[static_cast<int>(x)];
    }
  }
  return out;
}

void draw_dot(Picture& picture, int x, int y, Color color) {
  constexpr int kOffsets[][2] = {{0, -2}, {-1, -1}, {0, -1}, {1, -1}, {-2, 0}, {-1, 0}, {0, 0}, {-1, 1}};
  for (const auto& [dx, dy] : kOffsets) set_pixel(picture, x + dx, y + dy, color);
}

void draw_arc(Picture& picture, const Arc& arc, Color color) {
  const double cx = (arc.left + arc.right) / 2.0, cy = (arc.top + arc.bottom) / 2.0;
  const double rx = (arc.right - arc.left) / 2.0, ry = (arc.bottom - arc.top) / 2.0;
  // Steps of at most half a pixel; of the pixels that they touch only those that move on in both axes or in the longer one are kept.
  const int steps = static_cast<int>(4 * std::numbers::pi * std::max({rx, ry, 1.0}));
  const double from = arc.start * std::numbers::pi / 180, to = arc.end * std::numbers::pi / 180;
  for (int i = 0; i <= steps; ++i) {
    const double angle = from + (to - from) * i / steps;
    const double x = cx + rx * std::cos(angle), y = cy + ry * std::sin(angle);
    const bool flat = std::abs(ry * std::cos(angle)) <= std::abs(rx * std::sin(angle));  // the arc runs more across than down
    if (flat) {
      const double column = std::round(x), c = rx > 0 ? std::clamp((column - cx) / rx, -1.0, 1.0) : 0;
      set_pixel(picture, static_cast<int>(column), static_cast<int>(std::round(cy + ry * std::sqrt(1 - c * c))), color);
    } else {
      const double line = std::round(y), s = ry > 0 ? std::clamp((line - cy) / ry, -1.0, 1.0) : 0;
      const double side = std::cos(angle) < 0 ? -1 : 1;
      set_pixel(picture, static_cast<int>(std::round(cx + side * rx * std::sqrt(1 - s * s))), static_cast<int>(line), color);
    }
  }
}

void smooth(const Picture& picture, std::uint8_t* out) {
  constexpr std::uint32_t kThirteenth = 5042;  // of 65536, rounded up: exact for all sums there are
  const int stride = 3 * picture.width;
  std::copy(picture.bytes.begin(), picture.bytes.end(), out);
  for (int y = 1; y + 1 < picture.height; ++y) {
    const std::uint8_t *above = picture.row(y - 1), *here = picture.row(y), *below = picture.row(y + 1);
    std::uint8_t* row = out + static_cast<std::ptrdiff_t>(y) * stride;
    for (int i = 3; i < stride - 3; ++i) {
      const auto sum = static_cast<std::uint16_t>(above[i - 3] + above[i] + above[i + 3] + here[i - 3] + 5 * here[i] + here[i + 3] +
                                                  below[i - 3] + below[i] + below[i + 3] + 6);
      row[i] = static_cast<std::uint8_t>(sum * kThirteenth >> 16);
    }
  }
}

}  // namespace captcha
