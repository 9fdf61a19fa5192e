#include "report_charts.hpp"

#include <algorithm>
#include <cmath>

namespace tensorlite::report {

namespace {

using detail::concat;

// In the units of the viewBox; a phone shows them at about 0.85 of a CSS pixel.
constexpr double kWidth = 420, kHeight = 260, kLeft = 52, kRight = 12, kTop = 10, kBottom = 40;

struct Range {
  double low = 0, high = 1;
};

bool shown(double value, Scale scale) { return std::isfinite(value) && (scale == Scale::linear || value > 0); }

Range value_range(const std::vector<Series>& series, Scale scale) {
  Range range{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  for (const Series& s : series)
    for (const double v : s.values)
      if (shown(v, scale)) range = {std::min(range.low, v), std::max(range.high, v)};
  return range.low <= range.high ? range : Range{};
}

/// 1, 2 or 5 times a power of ten, giving at most about `count` steps.
double nice_step(double span, int count) {
  const double raw = span / count, power = std::pow(10, std::floor(std::log10(raw)));
  for (const double m : {1.0, 2.0, 5.0})
    if (raw <= m * power) return m * power;
  return 10 * power;
}

/// Whether an axis ends at round numbers or at its first and last value.
enum class Ends : std::uint8_t { round, exact };

/// Chart values to pixels, and the ticks between.
class Axis {
 public:
  Axis(Range values, Scale scale, Ends ends, double from, double to, int ticks) : scale_(scale), from_(from), to_(to) {
    if (scale == Scale::logarithmic && values.low > 0) log_ticks(values, ticks);
    if (ticks_.size() < 2) linear_ticks(values, ends, ticks);
  }
  double at(double value) const {
    const double v = scale_ == Scale::logarithmic ? std::log(value) : value;
    return from_ + (v - low_) / (high_ - low_) * (to_ - from_);
  }
  const std::vector<double>& ticks() const { return ticks_; }

 private:
  void linear_ticks(Range values, Ends ends, int count) {
    scale_ = Scale::linear;
    double span = values.high - values.low;
    if (span <= 0) {
      span = values.high != 0 ? std::abs(values.high) * 0.1 : 1;
      values = {values.low - span / 2, values.high + span / 2};
    }
    const double step = nice_step(span, count);
    low_ = std::floor(values.low / step + 1e-9) * step;
    high_ = std::ceil(values.high / step - 1e-9) * step;
    ticks_.clear();
    for (int i = 0; low_ + i * step <= high_ + step / 2; ++i) ticks_.push_back(low_ + i * step);
    if (ends == Ends::round) return;
    low_ = values.low;
    high_ = values.high;
    std::erase_if(ticks_, [&](double tick) { return tick < low_ - 1e-9 || tick > high_ + 1e-9; });
  }
  void log_ticks(Range values, int count) {
    low_ = std::log(values.low) - 0.05;
    high_ = std::log(values.high) + 0.05;
    const double decades = (high_ - low_) / std::log(10.0);
    for (int p = static_cast<int>(std::floor(low_ / std::log(10.0))); p <= static_cast<int>(std::ceil(high_ / std::log(10.0))); ++p)
      for (const double m : {1.0, 2.0, 5.0}) {
        const double tick = m * std::pow(10, p);
        if (decades * 3 > count + 2 && m != 1) continue;
        if (std::log(tick) >= low_ && std::log(tick) <= high_) ticks_.push_back(tick);
      }
  }
  Scale scale_;
  double from_, to_, low_ = 0, high_ = 1;
  std::vector<double> ticks_;
};

std::string tick_text(double value, const ChartFormat& format) { return formatted("%.5g", value * format.factor) + format.unit; }

std::string grid(const Axis& x, const Axis& y, std::size_t epochs, const ChartFormat& format) {
  std::string svg;
  for (const double tick : y.ticks()) {
    const std::string py = formatted("%.1f", y.at(tick));
    svg += concat("<path class=\"grid\" d=\"M", kLeft, " ", py, "H", kWidth - kRight, "\"/><text x=\"", kLeft - 6, "\" y=\"", py,
                  "\" dy=\".35em\" text-anchor=\"end\">", tick_text(tick, format), "</text>");
  }
  for (const double tick : x.ticks())
    if (tick == std::floor(tick) && tick >= 1 && tick <= static_cast<double>(epochs))
      svg += concat("<text x=\"", formatted("%.1f", x.at(tick)), "\" y=\"", kHeight - kBottom + 17, "\" text-anchor=\"middle\">",
                    formatted("%.0f", tick), "</text>");
  return svg + concat("<text x=\"", (kLeft + kWidth - kRight) / 2, "\" y=\"", kHeight - 6, "\" text-anchor=\"middle\">epoch</text>");
}

std::string draw_series(const Series& series, const Axis& x, const Axis& y, const ChartFormat& format) {
  constexpr std::size_t most_markers = 60;
  std::string points, markers;
  for (std::size_t i = 0; i < series.values.size(); ++i) {
    if (!shown(series.values[i], format.scale)) continue;
    const std::string px = formatted("%.1f", x.at(static_cast<double>(i + 1))), py = formatted("%.1f", y.at(series.values[i]));
    points += concat(points.empty() ? "" : " ", px, ",", py);
    if (series.values.size() <= most_markers)
      markers += concat("<circle cx=\"", px, "\" cy=\"", py, "\" r=\"", series.style == LineStyle::solid ? "2.6" : "1.8", "\"><title>",
                        escaped(series.name), ", epoch ", i + 1, ": ", tick_text(series.values[i], format), "</title></circle>");
  }
  return concat("<g class=\"c", series.color, series.style == LineStyle::dashed ? " dashed" : "", "\"><polyline points=\"", points, "\"/>",
                markers, "</g>");
}

}  // namespace

std::string formatted(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '&') result += "&amp;";
    else if (c == '<') result += "&lt;";
    else if (c == '>') result += "&gt;";
    else if (c == '"') result += "&quot;";
    else result += c;
  }
  return result;
}

std::string line_chart(const ChartFormat& format, const std::vector<Series>& series) {
  Range values = value_range(series, format.scale);
  if (format.from_zero) values.low = 0;
  std::size_t longest = 1;
  for (const Series& s : series) longest = std::max(longest, s.values.size());
  const Range epochs = longest > 1 ? Range{1, static_cast<double>(longest)} : Range{0, 2};
  const Axis y(values, format.scale, Ends::round, kHeight - kBottom, kTop, 5);
  const Axis x(epochs, Scale::linear, Ends::exact, kLeft + 8, kWidth - kRight - 8, 8);
  std::string svg = concat("<figure><figcaption>", escaped(format.title), "</figcaption><svg viewBox=\"0 0 ", kWidth, " ", kHeight,
                           "\" role=\"img\" aria-label=\"", escaped(format.title), "\">", grid(x, y, longest, format));
  for (const Series& s : series) svg += draw_series(s, x, y, format);
  return svg + "</svg></figure>\n";
}

std::string digit_svg(const Mistake& mistake) {
  constexpr int levels = 8;
  std::string svg = concat("<svg class=\"digit\" viewBox=\"0 0 ", mistake.width, " ", mistake.height, "\" role=\"img\" aria-label=\"a ",
                           mistake.truth, " read as ", mistake.predicted, "\">");
  const auto level_at = [&](std::int64_t row, std::int64_t column) {
    return (mistake.pixels[static_cast<std::size_t>(row * mistake.width + column)] * levels + 127) / 255;
  };
  for (int level = 1; level <= levels; ++level) {
    std::string path;
    for (std::int64_t row = 0; row < mistake.height; ++row)
      for (std::int64_t begin = 0, end = 0; begin < mistake.width; begin = end) {
        for (end = begin + 1; end < mistake.width && level_at(row, end) == level_at(row, begin);) ++end;
        if (level_at(row, begin) == level) path += concat("M", begin, " ", row, "h", end - begin, "v1H", begin, "z");
      }
    if (!path.empty())
      svg += concat("<path fill-opacity=\"", formatted("%.3g", static_cast<double>(level) / levels), "\" d=\"", path, "\"/>");
  }
  return svg + "</svg>";
}

}  // namespace tensorlite::report
