// Random orders and affine maps.
#include <tensorlite/data.hpp>
#include <tensorlite/detail/philox.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

namespace tensorlite::data {

namespace {

/// Keeps the numbers of maps apart from those of shuffles with the same seed.
constexpr std::uint64_t kMapSeed = 0x9e3779b97f4a7c15;

/// A coordinate as the two pixels around it and the weight of the second; outside, the edge's pixel alone.
struct Between {
  std::int64_t low, high;
  float weight;
};

Between around(double position, std::int64_t size) {
  const double clamped = std::clamp(position, 0.0, static_cast<double>(size - 1));
  const auto low = static_cast<std::int64_t>(clamped);
  return {low, std::min(low + 1, size - 1), static_cast<float>(clamped - static_cast<double>(low))};
}

}  // namespace

std::vector<std::int64_t> shuffled_indices(std::int64_t count, std::uint64_t seed, std::uint64_t stream) {
  TL_CHECK(count >= 0, ValueError, "shuffled_indices", "the count must not be negative, it is ", count);
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  detail::shuffle(std::span(order), PhiloxKey{seed, stream});
  return order;
}

ImageSet select_images(const ImageSet& images, std::span<const std::int64_t> indices) {
  ImageSet chosen{static_cast<std::int64_t>(indices.size()), images.height, images.width, {}, {}};
  chosen.pixels.reserve(indices.size() * static_cast<std::size_t>(images.height * images.width));
  for (const std::int64_t i : indices) {
    TL_CHECK(i >= 0 && i < images.count, IndexError, "select_images", "index ", i, " is outside the ", images.count, " images");
    const auto image = images.image(i);
    chosen.pixels.insert(chosen.pixels.end(), image.begin(), image.end());
    if (!images.labels.empty()) chosen.labels.push_back(images.labels[static_cast<std::size_t>(i)]);
  }
  return chosen;
}

Affine affine_about_center(std::int64_t height, std::int64_t width, double rotation_degrees, double shift_rows, double shift_columns,
                           double zoom_rows, double zoom_columns) {
  const double angle = rotation_degrees * std::numbers::pi / 180, cosine = std::cos(angle), sine = std::sin(angle);
  // rotation * shift * zoom: the shift is turned too.
  const double a = cosine * zoom_rows, b = -sine * zoom_columns, c = cosine * shift_rows - sine * shift_columns;
  const double d = sine * zoom_rows, e = cosine * zoom_columns, f = sine * shift_rows + cosine * shift_columns;
  const double row = static_cast<double>(height) / 2 - 0.5, column = static_cast<double>(width) / 2 - 0.5;
  return {{a, b, c + row - a * row - b * column, d, e, f + column - d * row - e * column}};
}

Affine random_affine(const AffineRanges& ranges, std::int64_t height, std::int64_t width, std::uint64_t seed, std::int64_t epoch,
                     std::int64_t index) {
  const PhiloxKey key{seed ^ kMapSeed, static_cast<std::uint64_t>(epoch)};
  const auto first = static_cast<std::uint64_t>(index) * 2;
  const detail::PhiloxWords words[] = {detail::philox(key, first), detail::philox(key, first + 1)};
  int used = 0;
  const auto within = [&](double range) {
    const std::uint32_t word = words[used / 4].word[used % 4];
    ++used;
    return range * (2 * (word * 0x1p-32) - 1);
  };
  const double rotation = within(ranges.rotation_degrees);
  const double shift_rows = within(ranges.shift) * static_cast<double>(height),
               shift_columns = within(ranges.shift) * static_cast<double>(width);
  const double zoom_rows = 1 + within(ranges.zoom), zoom_columns = 1 + within(ranges.zoom);
  return affine_about_center(height, width, rotation, shift_rows, shift_columns, zoom_rows, zoom_columns);
}

void warp_affine(std::span<const std::uint8_t> input, std::int64_t height, std::int64_t width, const Affine& map, std::span<float> output) {
  const auto pixels = static_cast<std::size_t>(height * width);
  TL_CHECK(input.size() == pixels && output.size() == pixels, ShapeError, "warp_affine", "an image of ", height, " x ", width, " has ",
           pixels, " pixels, the input has ", input.size(), " and the output ", output.size());
  const double* m = map.m;
  float* out = output.data();
  for (std::int64_t r = 0; r < height; ++r)
    for (std::int64_t c = 0; c < width; ++c) {
      const auto row = static_cast<double>(r), column = static_cast<double>(c);
      const Between y = around(m[0] * row + m[1] * column + m[2], height), x = around(m[3] * row + m[4] * column + m[5], width);
      const std::uint8_t *top = input.data() + y.low * width, *bottom = input.data() + y.high * width;
      const float upper = top[x.low] + x.weight * (top[x.high] - top[x.low]);
      const float lower = bottom[x.low] + x.weight * (bottom[x.high] - bottom[x.low]);
      *out++ = upper + y.weight * (lower - upper);
    }
}

}  // namespace tensorlite::data
