// Private to the build: line charts and digits as inline SVG, colour pictures as inline PNG.
#pragma once

#include <tensorlite/report.hpp>

namespace tensorlite::report {

enum class LineStyle : std::uint8_t { solid, dashed };

struct Series {
  std::string name;
  int color = 0;  ///< index of a CSS class c0, c1, ...
  LineStyle style = LineStyle::solid;
  std::vector<double> values;  ///< at x = 1, 2, ...; what is not finite is left out
};

enum class Scale : std::uint8_t { linear, logarithmic };

/// How a chart's numbers are written.
struct ChartFormat {
  std::string title;
  Scale scale = Scale::linear;
  bool from_zero = false;
  double factor = 1;  ///< 100 for percent
  std::string unit = "";
};

std::string line_chart(const ChartFormat& format, const std::vector<Series>& series);
/// Ink in the text's colour, so that it is seen in light and dark mode.
std::string digit_svg(const Mistake& mistake);
/// An <img> that holds its PNG file.
std::string picture_png(const Picture& picture);
/// With &, <, > and quotes replaced.
std::string escaped(std::string_view text);
/// printf with one double.
std::string formatted(const char* format, double value);

}  // namespace tensorlite::report
