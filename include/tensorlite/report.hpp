// L4: what a training run tells people: a progress line while it goes, one HTML page afterwards.
#pragma once

#include <tensorlite/metrics.hpp>

#include <chrono>
#include <optional>

namespace tensorlite::report {

/// Shows how far a loop has come: on a terminal one line that is redrawn at most ten times a second, otherwise a plain line every half
/// minute. `if (bar.due()) bar.update(done, details)` keeps details from being computed for nobody.
class TL_API ProgressBar {
 public:
  /// `unit` is what is counted.
  ProgressBar(std::string label, std::int64_t total, std::string unit = "images", std::FILE* out = stdout);
  bool due() const;
  /// Details are free text: "loss 0.1234".
  void update(std::int64_t done, std::string_view details);
  /// Takes the bar off the terminal again.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  std::string label_, unit_;
  std::int64_t total_;
  std::FILE* out_;
  bool terminal_;
  Clock::time_point start_, last_;
};

/// "1:05:09", "12:34", "45 s", "0.42 s"
TL_API std::string format_duration(double seconds);

struct Epoch {
  double loss = 0, accuracy = 0, val_loss = 0, val_accuracy = 0, seconds = 0;
};

/// A picture that was read wrongly.
struct Mistake {
  std::int64_t index = 0;  ///< in the test set
  int truth = 0, predicted = 0;
  double truth_probability = 0, predicted_probability = 0;
  std::int64_t height = 0, width = 0;
  std::vector<std::uint8_t> pixels;  ///< 0..255, 255 = ink
};

/// One training run, on one device.
struct Run {
  std::string name;    ///< short, for the legend: "cpu"
  std::string device;  ///< in words
  int threads = 0;
  std::vector<Epoch> epochs;
  double test_accuracy = 0, test_loss = 0, seconds_total = 0;
  std::int64_t training_images = 0;
  std::optional<metrics::ConfusionMatrix> confusion;
  std::vector<Mistake> mistakes;  ///< worst first
};

/// A picture in colour and the words below it.
struct Picture {
  std::int64_t height = 0, width = 0;
  std::vector<std::uint8_t> rgb;  ///< height x width x 3
  std::string caption;
  bool wrong = false;  ///< the caption tells of an error, and is marked
};
struct Gallery {
  std::string title, text;
  std::vector<Picture> pictures;
};
struct Table {
  std::string title, text;
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;  ///< as long as the header
};

struct Report {
  std::string title;
  std::vector<Run> runs;                                   ///< speed-ups are against the first
  std::vector<std::pair<std::string, std::string>> facts;  ///< settings and versions, shown as a list
  std::vector<Gallery> galleries = {};                     ///< shown after the runs; empty ones are left out
  std::vector<Table> tables = {};                          ///< shown after the galleries
};

/// One HTML page: inline SVG and PNG, no script, nothing loaded; follows the reader's light or dark mode.
/// Throws ValueError for a picture whose bytes do not fit its size.
TL_API std::string to_html(const Report& report);
/// Writes it as index.html into `folder`, which is made when missing; returns the file's path. Atomic. Throws IoError.
TL_API std::string write_report(const std::string& folder, const Report& report);

}  // namespace tensorlite::report
