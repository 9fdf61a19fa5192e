#include "evaluate.hpp"

#include <tensorlite/tensorlite.hpp>

#include <algorithm>
#include <chrono>

namespace captcha {

namespace tl = tensorlite;
using tl::detail::concat;
using Clock = std::chrono::steady_clock;

std::int64_t Evaluation::right() const {
  return std::count_if(readings.begin(), readings.end(), [](const Reading& r) { return r.right(); });
}

double Evaluation::accuracy() const { return readings.empty() ? 0 : static_cast<double>(right()) / static_cast<double>(readings.size()); }

double Evaluation::mean_loss() const {
  tl::metrics::RunningMean mean;
  for (const Reading& r : readings) mean.add(r.loss);
  return mean.value();
}

std::map<char, LetterErrors> Evaluation::letters() const {
  std::map<char, LetterErrors> letters;
  for (const Reading& r : readings)
    for (const auto& [truth, read] : aligned(r.truth, r.read)) {
      if (truth == '\0') continue;  // invented
      LetterErrors& letter = letters[truth];
      ++letter.shown;
      if (truth == read) continue;
      ++letter.wrong;
      ++letter.read_as[read];
    }
  return letters;
}

std::vector<Reading> Evaluation::hardest(std::size_t count) const {
  std::vector<Reading> sorted = readings;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Reading& a, const Reading& b) { return a.loss > b.loss; });
  sorted.resize(std::min(sorted.size(), count));
  return sorted;
}

Evaluation evaluate(tl::nn::Module& model, const Interpreter& interpreter, std::shared_ptr<const Pictures> pictures,
                    const tl::data::DataLoaderOptions& options) {
  const tl::NoGradGuard no_grad;
  const auto start = Clock::now();
  model.eval();
  Evaluation evaluation;
  tl::data::DataLoader loader(pictures, options);
  std::int64_t index = 0;
  for (const auto& batch : loader) {
    std::vector<std::string> truths;
    for (std::int64_t i = 0; i < batch.size(); ++i) truths.push_back(pictures->text(index + i));
    const tl::Tensor scores = model(to_input(batch.data));
    const auto read = interpreter.texts(interpreter.choices(scores));
    const auto losses = interpreter.losses(scores, interpreter.encode(truths)).to_vector<float>();
    for (std::size_t i = 0; i < truths.size(); ++i) evaluation.readings.push_back({index++, truths[i], read[i], losses[i]});
  }
  evaluation.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return evaluation;
}

// ------------------------------------------------------------------------------------------------------------------------- words

namespace {

using LetterRow = std::pair<char, LetterErrors>;

std::vector<LetterRow> worst_letters(const Evaluation& evaluation) {
  std::vector<LetterRow> rows;
  for (const auto& row : evaluation.letters())
    if (row.second.wrong > 0) rows.push_back(row);
  std::stable_sort(rows.begin(), rows.end(), [](const LetterRow& a, const LetterRow& b) { return a.second.wrong > b.second.wrong; });
  return rows;
}

/// "as 0: 11, as Q: 1, missed: 2"
std::string read_as(const LetterErrors& errors) {
  std::vector<std::pair<char, std::int64_t>> most(errors.read_as.begin(), errors.read_as.end());
  std::stable_sort(most.begin(), most.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (const auto& [letter, count] : most)
    text += concat(text.empty() ? "" : ", ", letter == '\0' ? "missed" : std::string("as ") + letter, ": ", count);
  return text;
}

}  // namespace

std::string describe_errors(const Evaluation& evaluation, std::size_t most) {
  std::string text;
  auto rows = worst_letters(evaluation);
  rows.resize(std::min(rows.size(), most));
  for (const auto& [letter, errors] : rows)
    text += concat(text.empty() ? "" : "; ", letter, " ", errors.wrong, " of ", errors.shown, " (", read_as(errors), ")");
  return text;
}

tl::report::Table error_table(const Evaluation& evaluation) {
  tl::report::Table table{
      "Errors per letter", "Letters that were misread, worst first.", {"letter", "shown", "misread", "share", "read"}, {}};
  for (const auto& [letter, errors] : worst_letters(evaluation)) {
    char share[32];
    std::snprintf(share, sizeof share, "%.2f %%", 100 * static_cast<double>(errors.wrong) / static_cast<double>(errors.shown));
    table.rows.push_back({std::string(1, letter), std::to_string(errors.shown), std::to_string(errors.wrong), share, read_as(errors)});
  }
  return table;
}

std::vector<tl::report::Picture> pictures_of(const std::vector<Reading>& readings, const Pictures& pictures) {
  std::vector<tl::report::Picture> shown;
  for (const Reading& r : readings) {
    const tl::Tensor pixels = pictures.get(std::span(&r.index, 1), 0).data;
    const std::string caption = r.right() ? r.truth : concat(r.truth, ", read as ", r.read.empty() ? "nothing" : r.read);
    shown.push_back({pixels.size(1), pixels.size(2), pixels.to_vector<std::uint8_t>(), caption, !r.right()});
  }
  return shown;
}

}  // namespace captcha
