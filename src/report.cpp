#include <tensorlite/report.hpp>

#include "io_file.hpp"
#include "platform.hpp"
#include "report_charts.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>

namespace tensorlite::report {

namespace {

using detail::concat;

constexpr const char* kStyle = R"(
:root{color-scheme:light dark;--page:#f6f7f9;--card:#fff;--ink:#1b2430;--soft:#5b6675;--line:#dfe3e8;--c0:#2563c9;--c1:#c2571a;--c2:#17805d;--c3:#8a3ea8;--right:37,99,201;--wrong:214,69,48}
@media(prefers-color-scheme:dark){:root{--page:#12161c;--card:#1b212a;--ink:#e6eaf0;--soft:#9aa6b5;--line:#323b47;--c0:#6ea8ff;--c1:#ff9f5a;--c2:#4fd1a1;--c3:#cf8df0;--right:86,146,255;--wrong:255,105,80}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:76rem;margin:0 auto;padding:1.25rem 1rem 3rem}
h1{font-size:1.6rem;line-height:1.25;margin:.25rem 0 .25rem}
h2{font-size:1.15rem;margin:2rem 0 .6rem}
h3{font-size:1rem;margin:.2rem 0 .6rem}
p{margin:.3rem 0}
.soft,figcaption small,dt{color:var(--soft)}
.card,figure{background:var(--card);border:1px solid var(--line);border-radius:.6rem;padding:.9rem;margin:0}
.charts,.pair{display:grid;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,22rem),1fr))}
.numbers{display:flex;flex-wrap:wrap;gap:.4rem 2rem;margin:.8rem 0}
.numbers b{display:block;font-size:1.7rem;line-height:1.2;font-weight:650}
figcaption{font-weight:600;margin-bottom:.3rem}
svg{display:block;width:100%;height:auto}
svg text{font-size:13px;fill:var(--soft);font-family:inherit}
.grid{stroke:var(--line);fill:none}
polyline{fill:none;stroke:currentColor;stroke-width:2.2;stroke-linejoin:round}
circle{fill:currentColor}
.dashed polyline{stroke-dasharray:5 4;stroke-width:1.6}
.c0 polyline{stroke-width:4;stroke-opacity:.75}
.c0.dashed polyline{stroke-width:3}
.c0{color:var(--c0)}.c1{color:var(--c1)}.c2{color:var(--c2)}.c3{color:var(--c3)}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;margin:0 0 .7rem;padding:0;list-style:none}
.legend svg{display:inline-block;width:34px;height:10px;vertical-align:middle;margin-right:.4rem}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
.data{width:100%}
.data th,.data td{padding:.3rem .6rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
.data th:first-child,.data td:first-child{text-align:left}
.data td:last-child{white-space:normal}
.data th{font-weight:600;color:var(--soft)}
.confusion{width:100%;max-width:34rem;table-layout:fixed}
.confusion th,.confusion td{padding:.28rem 0;text-align:center;font-size:clamp(.62rem,2.4vw,.85rem)}
.confusion td{border:1px solid var(--card)}
.confusion th{color:var(--soft);font-weight:600}
.digits{display:grid;gap:.6rem;grid-template-columns:repeat(auto-fill,minmax(7.2rem,1fr))}
.digits figure{padding:.5rem;text-align:center;font-size:.85rem;line-height:1.35}
.digit{width:84px;margin:0 auto .3rem;shape-rendering:crispEdges;fill:currentColor}
.pictures{display:grid;gap:.6rem;grid-template-columns:repeat(auto-fill,minmax(10rem,1fr))}
.pictures figure{padding:.5rem;text-align:center;font-size:.85rem;line-height:1.35}
.pictures img{display:block;max-width:100%;height:auto;margin:0 auto .3rem;border-radius:.25rem}
.error{color:rgb(var(--wrong));font-weight:600}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.25rem 1rem;margin:0}
dd{margin:0;overflow-wrap:anywhere}
summary{cursor:pointer;color:var(--soft)}
)";

std::string percent(double fraction) { return formatted("%.2f %%", 100 * fraction); }

double median_seconds(const Run& run) {
  std::vector<double> seconds;
  for (const Epoch& epoch : run.epochs) seconds.push_back(epoch.seconds);
  return metrics::median(std::move(seconds));
}

int color_of(std::size_t run) { return static_cast<int>(run % 4); }

std::string number(const std::string& value, std::string_view meaning) {
  return concat("<div><b>", value, "</b><span class=\"soft\">", meaning, "</span></div>");
}

std::string headline(const Report& report) {
  std::string html = "<div class=\"numbers\">";
  for (const Run& run : report.runs) {
    const std::string where = report.runs.size() > 1 ? concat(" (", escaped(run.name), ")") : "";
    html += number(percent(run.test_accuracy), concat("test accuracy", where)) +
            number(format_duration(median_seconds(run)), concat("per epoch", where));
  }
  if (report.runs.size() > 1 && median_seconds(report.runs.back()) > 0)
    html += number(formatted("%.1f", median_seconds(report.runs[0]) / median_seconds(report.runs.back())) + " times",
                   concat("as fast on ", escaped(report.runs.back().name), " as on ", escaped(report.runs[0].name)));
  return html + "</div>\n";
}

std::string legend(const Report& report) {
  const auto item = [](int color, bool dashed, const std::string& text) {
    return concat("<li><svg viewBox=\"0 0 34 10\" aria-hidden=\"true\"><g class=\"c", color, dashed ? " dashed" : "",
                  "\"><polyline points=\"0,5 34,5\"/></g></svg>", text, "</li>");
  };
  std::string html = "<ul class=\"legend\">";
  for (std::size_t i = 0; i < report.runs.size(); ++i) {
    const std::string name = escaped(report.runs[i].name);
    html += item(color_of(i), false, concat(name, ", validation")) + item(color_of(i), true, concat(name, ", training"));
  }
  return html + "</ul>\n";
}

using Value = double Epoch::*;

void add_series(std::vector<Series>& out, const Report& report, Value value, LineStyle style, const char* kind) {
  for (std::size_t i = 0; i < report.runs.size(); ++i) {
    Series series{concat(report.runs[i].name, kind), color_of(i), style, {}};
    for (const Epoch& epoch : report.runs[i].epochs) series.values.push_back(epoch.*value);
    out.push_back(std::move(series));
  }
}

std::string charts(const Report& report) {
  std::vector<Series> loss, accuracy, seconds;
  add_series(loss, report, &Epoch::loss, LineStyle::dashed, ", training");
  add_series(loss, report, &Epoch::val_loss, LineStyle::solid, ", validation");
  add_series(accuracy, report, &Epoch::accuracy, LineStyle::dashed, ", training");
  add_series(accuracy, report, &Epoch::val_accuracy, LineStyle::solid, ", validation");
  add_series(seconds, report, &Epoch::seconds, LineStyle::solid, "");
  return concat("<h2>Curves</h2>\n", legend(report), "<div class=\"charts\">\n",
                line_chart({.title = "Loss (logarithmic)", .scale = Scale::logarithmic}, loss),
                line_chart({.title = "Accuracy", .factor = 100, .unit = "%"}, accuracy),
                line_chart({.title = "Seconds per epoch", .from_zero = true}, seconds), "</div>\n");
}

std::string run_table(const Report& report) {
  std::string html =
      "<h2>Runs</h2>\n<div class=\"card scroll\"><table class=\"data\"><tr><th>run</th><th>test accuracy</th><th>test loss</th>"
      "<th>median epoch</th><th>images/s</th><th>speed-up</th><th>total</th><th>epochs</th><th>threads</th><th>device</th></tr>\n";
  for (std::size_t i = 0; i < report.runs.size(); ++i) {
    const Run& run = report.runs[i];
    const double seconds = median_seconds(run);
    const std::string rate = seconds > 0 ? formatted("%.0f", static_cast<double>(run.training_images) / seconds) : "";
    const std::string speed_up = seconds > 0 ? formatted("%.2f", median_seconds(report.runs[0]) / seconds) : "";
    html += concat("<tr><td class=\"c", color_of(i), "\">", escaped(run.name), "</td><td>", percent(run.test_accuracy), "</td><td>",
                   formatted("%.4f", run.test_loss), "</td><td>", format_duration(seconds), "</td><td>", rate, "</td><td>", speed_up,
                   "</td><td>", format_duration(run.seconds_total), "</td><td>", run.epochs.size(), "</td><td>", run.threads, "</td><td>",
                   escaped(run.device), "</td></tr>\n");
  }
  return html + "</table></div>\n";
}

std::string epoch_table(const Run& run) {
  std::string html = concat("<details class=\"card\"><summary>Every epoch of ", escaped(run.name),
                            "</summary><div class=\"scroll\"><table class=\"data\"><tr><th>epoch</th><th>loss</th><th>accuracy</th>"
                            "<th>val. loss</th><th>val. accuracy</th><th>time</th></tr>\n");
  for (std::size_t i = 0; i < run.epochs.size(); ++i) {
    const Epoch& e = run.epochs[i];
    html += concat("<tr><td>", i + 1, "</td><td>", formatted("%.4f", e.loss), "</td><td>", percent(e.accuracy), "</td><td>",
                   formatted("%.4f", e.val_loss), "</td><td>", percent(e.val_accuracy), "</td><td>", format_duration(e.seconds),
                   "</td></tr>\n");
  }
  return html + "</table></div></details>\n";
}

/// Cells are tinted by the logarithm of their share of the row, so that single errors can be seen beside thousands of hits.
std::string confusion_table(const metrics::ConfusionMatrix& matrix) {
  std::string html = "<table class=\"confusion\"><tr><th></th>";
  for (std::int64_t c = 0; c < matrix.classes(); ++c) html += concat("<th scope=\"col\">", c, "</th>");
  html += "</tr>\n";
  for (std::int64_t truth = 0; truth < matrix.classes(); ++truth) {
    std::int64_t row_total = 0;
    for (std::int64_t c = 0; c < matrix.classes(); ++c) row_total += matrix.at(truth, c);
    html += concat("<tr><th scope=\"row\">", truth, "</th>");
    for (std::int64_t c = 0; c < matrix.classes(); ++c) {
      const auto count = matrix.at(truth, c);
      const double strength = row_total > 0 ? std::log1p(static_cast<double>(count)) / std::log1p(static_cast<double>(row_total)) : 0;
      html += concat("<td style=\"background:rgba(var(--", c == truth ? "right" : "wrong", "),", formatted("%.2f", 0.75 * strength), ")\">",
                     count ? std::to_string(count) : "", "</td>");
    }
    html += "</tr>\n";
  }
  return html + "</table>\n";
}

std::string mistakes(const Run& run) {
  if (run.mistakes.empty()) return "";
  std::string html = concat("<h2>Worst errors of ", escaped(run.name), "</h2>\n<div class=\"digits\">\n");
  for (const Mistake& m : run.mistakes)
    html += concat("<figure>", digit_svg(m), "is <b>", m.truth, "</b>, read as <b>", m.predicted, "</b><br><span class=\"soft\">p(",
                   m.truth, ") ", formatted("%.2g", m.truth_probability), ", p(", m.predicted, ") ",
                   formatted("%.2f", m.predicted_probability), "<br>test image ", m.index, "</span></figure>\n");
  return html + "</div>\n";
}

std::string confusions(const Report& report) {
  std::string html;
  for (const Run& run : report.runs)
    if (run.confusion)
      html += concat("<div class=\"card\"><h3>", escaped(run.name), ": ", run.confusion->correct(), " of ", run.confusion->total(),
                     " right</h3>", confusion_table(*run.confusion), "</div>\n");
  return html.empty() ? html
                      : concat(
                            "<h2>Confusion matrix</h2>\n<p class=\"soft\">A row is a true digit, a column what it was read as.</p>\n"
                            "<div class=\"pair\">\n",
                            html, "</div>\n");
}

std::string paragraph(const std::string& text) { return text.empty() ? "" : concat("<p class=\"soft\">", escaped(text), "</p>\n"); }

std::string gallery(const Gallery& gallery) {
  if (gallery.pictures.empty()) return "";
  std::string html = concat("<h2>", escaped(gallery.title), "</h2>\n", paragraph(gallery.text), "<div class=\"pictures\">\n");
  for (const Picture& picture : gallery.pictures)
    html += concat("<figure>", picture_png(picture), "<span", picture.wrong ? " class=\"error\"" : "", ">", escaped(picture.caption),
                   "</span></figure>\n");
  return html + "</div>\n";
}

std::string table(const Table& table) {
  if (table.rows.empty()) return "";
  const auto line = [](const std::vector<std::string>& cells, const char* tag) {
    std::string html = "<tr>";
    for (const std::string& cell : cells) html += concat("<", tag, ">", escaped(cell), "</", tag, ">");
    return html + "</tr>\n";
  };
  std::string html = concat("<h2>", escaped(table.title), "</h2>\n", paragraph(table.text),
                            "<div class=\"card scroll\"><table class=\"data\">", line(table.header, "th"));
  for (const auto& row : table.rows) html += line(row, "td");
  return html + "</table></div>\n";
}

std::string facts(const Report& report) {
  std::string html = "<h2>Settings and versions</h2>\n<dl class=\"card\">\n";
  for (const auto& [name, value] : report.facts) html += concat("<dt>", escaped(name), "</dt><dd>", escaped(value), "</dd>\n");
  return html + "</dl>\n";
}

}  // namespace

std::string format_duration(double seconds) {
  if (!(seconds < 99.5)) {
    const auto whole = static_cast<long long>(std::llround(std::min(seconds, 1e15)));
    char text[48];
    if (whole >= 3600) std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
    else std::snprintf(text, sizeof text, "%lld:%02lld min", whole / 60, whole % 60);
    return text;
  }
  return formatted(seconds < 9.95 ? "%.2f s" : seconds < 99.5 ? "%.1f s" : "%.0f s", seconds);
}

std::string to_html(const Report& report) {
  std::string html = concat(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\"><title>",
      escaped(report.title), "</title><style>", kStyle, "</style></head><body><main>\n<h1>", escaped(report.title), "</h1>\n",
      headline(report), charts(report), run_table(report));
  for (const Run& run : report.runs) html += epoch_table(run);
  html += confusions(report);
  for (const Run& run : report.runs) html += mistakes(run);
  for (const Gallery& pictures : report.galleries) html += gallery(pictures);
  for (const Table& rows : report.tables) html += table(rows);
  return html + facts(report) + "</main></body></html>\n";
}

std::string write_report(const std::string& folder, const Report& report) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw IoError("write_report", folder, concat("cannot make the folder: ", error.message()));
  const std::string path = (std::filesystem::path(folder) / "index.html").string();
  detail::AtomicFile file("write_report", path);
  file.write(to_html(report));
  file.commit();
  return path;
}

// --------------------------------------------------------------------------------------------------------------- ProgressBar

ProgressBar::ProgressBar(std::string label, std::int64_t total, std::string unit, std::FILE* out)
    : label_(std::move(label)),
      unit_(std::move(unit)),
      total_(total),
      out_(out),
      terminal_(platform::is_terminal(out)),
      start_(Clock::now()),
      last_(start_) {}

bool ProgressBar::due() const {
  using namespace std::chrono_literals;
  return Clock::now() - last_ >= (terminal_ ? Clock::duration(100ms) : Clock::duration(30s));
}

void ProgressBar::update(std::int64_t done, std::string_view details) {
  if (!due()) return;
  last_ = Clock::now();
  const double fraction = total_ > 0 ? std::min(1.0, static_cast<double>(done) / static_cast<double>(total_)) : 0;
  const double elapsed = std::chrono::duration<double>(last_ - start_).count();
  const std::string left = fraction > 0 ? format_duration(elapsed / fraction - elapsed) + " left" : "";
  const std::string rate = elapsed > 0 ? concat(formatted("%.0f ", static_cast<double>(done) / elapsed), unit_, "/s") : "";
  const std::string figures = concat(formatted("%3.0f%%", 100 * fraction), "  ", details, "  ", rate, "  ", left);
  std::string bar;
  constexpr int cells = 10;
  for (int i = 0; i < cells; ++i) bar += i < fraction * cells ? "█" : "·";
  // Without line wrap, so that a narrow terminal cuts the line instead of filling the screen with it.
  if (terminal_) std::fprintf(out_, "\r\x1b[?7l%s %s %s\x1b[K\x1b[?7h", label_.c_str(), bar.c_str(), figures.c_str());
  else std::fprintf(out_, "%s %s\n", label_.c_str(), figures.c_str());
  std::fflush(out_);
}

void ProgressBar::clear() {
  if (terminal_) std::fprintf(out_, "\r\x1b[K");
  std::fflush(out_);
}

}  // namespace tensorlite::report
