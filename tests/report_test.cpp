// The HTML report, the progress line and the metrics behind them.
#include <tensorlite/report.hpp>

#include "catch.hpp"
#include "temp_folder.hpp"

#include <cmath>

namespace tl = tensorlite;
using Catch::Matchers::ContainsSubstring;

namespace {

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

tl::report::Run sample_run(const std::string& name, double seconds) {
  tl::report::Run run;
  run.name = name;
  run.device = name + " <device> & \"more\"";
  run.training_images = 1000;
  run.test_accuracy = 0.9876;
  for (int i = 1; i <= 3; ++i) run.epochs.push_back({0.5 / i, 1 - 0.1 / i, 0.4 / i, 1 - 0.05 / i, seconds});
  run.confusion.emplace(10);
  run.confusion->add(3, 3);
  run.confusion->add(3, 5);
  run.mistakes.push_back({17, 3, 5, 0.125, 0.75, 2, 3, {0, 255, 255, 0, 0, 128}});
  return run;
}

/// Every <tag> is closed in order, void elements apart.
bool balanced(const std::string& html) {
  std::vector<std::string> open;
  for (std::size_t at = html.find('<'); at != html.npos; at = html.find('<', at + 1)) {
    const auto end = html.find('>', at);
    if (end == html.npos) return false;
    std::string tag = html.substr(at + 1, end - at - 1);
    if (tag[0] == '!' || tag.back() == '/') continue;
    const bool closing = tag[0] == '/';
    tag = tag.substr(closing, tag.find(' ') == tag.npos ? tag.npos : tag.find(' ') - closing);
    if (tag == "meta" || tag == "br") continue;
    if (!closing) open.push_back(tag);
    else if (open.empty() || open.back() != tag) return false;
    else open.pop_back();
  }
  return open.empty();
}

}  // namespace

TEST_CASE("the report is one page that needs nothing else and tells every number") {
  tl::report::Report report{"Digits & <more>", {sample_run("cpu", 8), sample_run("gpu", 2)}, {{"seed", "1"}}};
  const std::string html = tl::report::to_html(report);
  CHECK(balanced(html));
  CHECK_THAT(html,
             ContainsSubstring("<h1>Digits &amp; &lt;more&gt;</h1>") && ContainsSubstring("cpu &lt;device&gt; &amp; &quot;more&quot;"));
  CHECK(count(html, "<script") == 0);
  CHECK(count(html, "http") == 0);
  CHECK_THAT(html, ContainsSubstring("prefers-color-scheme:dark") && ContainsSubstring("width=device-width"));
  CHECK_THAT(html, ContainsSubstring("98.76 %") && ContainsSubstring("4.0 times") && ContainsSubstring("<td>4.00</td>"));
  CHECK(count(html, "<polyline") == 4 + 2 * 5);  // the legend, then four curves and a time line per run
  CHECK(count(html, "<circle") == 2 * 5 * 3);
  CHECK_THAT(html, ContainsSubstring("cpu, validation, epoch 2: 97.5%"));
  CHECK_THAT(html, ContainsSubstring("is <b>3</b>, read as <b>5</b>") && ContainsSubstring("test image 17"));
  CHECK_THAT(html, ContainsSubstring("M1 0h2v1H1z"));  // the two full pixels of the mistake's first row, as one run
  CHECK_THAT(html, ContainsSubstring("<dt>seed</dt><dd>1</dd>"));
}

TEST_CASE("colour pictures are inline PNG with their captions, tables have their cells") {
  tl::report::Report report{"t", {}, {}};
  report.galleries = {{"Samples <24>", "what is & what was read", {{2, 1, {255, 0, 0, 0, 255, 0}, "is A&B, read as C", true}}},
                      {"none", "", {}}};
  report.tables = {{"Errors", "", {"letter", "errors"}, {{"O", "12"}, {"<", "3"}}}};
  const std::string html = tl::report::to_html(report);
  CHECK(balanced(html));
  CHECK_THAT(html, ContainsSubstring("<h2>Samples &lt;24&gt;</h2>") && ContainsSubstring("what is &amp; what was read") &&
                       ContainsSubstring("<span class=\"error\">is A&amp;B, read as C</span>") && !ContainsSubstring("<h2>none"));
  CHECK_THAT(html, ContainsSubstring("<th>letter</th><th>errors</th>") && ContainsSubstring("<td>&lt;</td><td>3</td>"));
  // PNG's signature and first chunk.
  CHECK_THAT(html,
             ContainsSubstring("width=\"1\" height=\"2\"") && ContainsSubstring("src=\"data:image/png;base64,iVBORw0KGgoAAAANSUhEUg"));
  report.galleries[0].pictures[0].rgb.pop_back();
  CHECK_THAT(error_text<tl::ValueError>([&] { tl::report::to_html(report); }), ContainsSubstring("a picture of 1x2 pixels has 5 bytes"));
}

TEST_CASE("a report of one epoch, of equal values, of NaN and of nothing is still a page") {
  tl::report::Run run = sample_run("cpu", 0);
  run.epochs = {{std::nan(""), 0.5, INFINITY, 0.5, 0}};
  for (const auto& runs : {std::vector{run}, std::vector{tl::report::Run{}}, std::vector<tl::report::Run>{}}) {
    const std::string html = tl::report::to_html({"t", runs, {}});
    CHECK(balanced(html));
    CHECK(count(html, "\"nan") + count(html, ",nan") == 0);
    CHECK(count(html, "\"inf") == 0);
  }
}

TEST_CASE("write_report makes the folder, replaces the page, and says what it cannot write") {
  const TempFolder folder;
  const std::string path = tl::report::write_report(folder / "a/b", {"page one", {}, {}});
  CHECK(path == folder / "a/b/index.html");
  tl::report::write_report(folder / "a/b", {"page two", {}, {}});
  CHECK_THAT(file_bytes(path), ContainsSubstring("page two") && !ContainsSubstring("page one"));
  folder.write("file", "x");
  const auto error = error_text<tl::IoError>([&] { tl::report::write_report(folder / "file", {"t", {}, {}}); });
  CHECK_THAT(error, ContainsSubstring(folder / "file"));
  CHECK(file_bytes(folder / "file") == "x");
}

TEST_CASE("durations are written as people read them") {
  CHECK(tl::report::format_duration(0.123) == "0.12 s");
  CHECK(tl::report::format_duration(45.04) == "45.0 s");
  CHECK(tl::report::format_duration(99.7) == "1:40 min");
  CHECK(tl::report::format_duration(754) == "12:34 min");
  CHECK(tl::report::format_duration(3909) == "1:05:09");
}

TEST_CASE("the progress bar writes plain lines where there is no terminal") {
  const TempFolder folder;
  std::FILE* file = std::fopen((folder / "out").c_str(), "w");
  tl::report::ProgressBar bar("epoch 1", 100, "images", file);
  for (int i = 0; i <= 100; ++i) bar.update(i, "loss 1");
  bar.clear();
  std::fclose(file);
  CHECK(file_bytes(folder / "out").empty());  // half a minute has not passed
}

TEST_CASE("metrics: running mean and confusion matrix") {
  tl::metrics::RunningMean mean;
  CHECK(mean.value() == 0);
  mean.add(1, 64);
  mean.add(4, 36);
  CHECK(mean.value() == Approx(2.08));
  CHECK(tl::metrics::median({}) == 0);
  CHECK(tl::metrics::median({3, 1, 2}) == 2);
  const tl::Tensor logits{{0.1f, 0.7f}, {2.f, -1.f}, {0.f, 3.f}, {1.f, 0.f}}, labels{1, 0, 0, 0};
  CHECK(tl::metrics::correct_count(logits, labels).item<std::int64_t>() == 3);
  CHECK(tl::metrics::accuracy(logits, labels) == 0.75);
  tl::metrics::ConfusionMatrix matrix(3);
  CHECK(matrix.accuracy() == 0);
  for (const auto& [truth, predicted] : {std::pair{0, 0}, {0, 2}, {1, 1}, {2, 2}}) matrix.add(truth, predicted);
  CHECK(matrix.at(0, 2) == 1);
  CHECK(matrix.at(2, 0) == 0);
  CHECK(matrix.accuracy() == 0.75);
  CHECK_THAT(error_text<tl::ValueError>([&] { matrix.add(0, 3); }), ContainsSubstring("class 3 is outside 0..2"));
  CHECK(matrix.total() == 4);
}
