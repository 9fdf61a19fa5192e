// L4: how good a classifier is.
#pragma once

#include <tensorlite/ops/ctc.hpp>

#include <algorithm>

namespace tensorlite::metrics {

/// How many rows have their largest value at the label, on the inputs' device (nothing is waited for).
/// Shapes: logits [N, classes], labels [N]; result 0-d, int64.
inline Tensor correct_count(const Tensor& logits, const Tensor& labels) { return sum(argmax(logits, 1) == labels); }
/// The same as a share of the rows; NaN of no rows.
inline double accuracy(const Tensor& logits, const Tensor& labels) {
  return static_cast<double>(correct_count(logits, labels).item<std::int64_t>()) / static_cast<double>(labels.numel());
}

/// The fewest labels to insert, delete or replace that make one sequence the other (Levenshtein).
inline std::int64_t edit_distance(const Labels& a, const Labels& b) {
  std::vector<std::int64_t> row(b.size() + 1);  // distances of a's beginning to all beginnings of b
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<std::int64_t>(j);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::int64_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j)
      diagonal = std::exchange(row[j + 1], std::min({row[j + 1] + 1, row[j] + 1, diagonal + (a[i] != b[j])}));
  }
  return row[b.size()];
}
/// The share of sequences that are right from end to end; NaN of none. Throws ValueError when the numbers differ.
inline double exact_match(const std::vector<Labels>& predicted, const std::vector<Labels>& truth) {
  TL_CHECK(predicted.size() == truth.size(), ValueError, "exact_match", predicted.size(), " predictions for ", truth.size(), " sequences");
  std::size_t same = 0;
  for (std::size_t i = 0; i < truth.size(); ++i) same += predicted[i] == truth[i];
  return static_cast<double>(same) / static_cast<double>(truth.size());
}

/// Mean of values with weights: of a loss over batches of different sizes, say. 0 when nothing was added.
class RunningMean {
 public:
  void add(double value, double weight = 1) {
    sum_ += value * weight;
    weight_ += weight;
  }
  double value() const { return weight_ > 0 ? sum_ / weight_ : 0; }
  double weight() const { return weight_; }

 private:
  double sum_ = 0, weight_ = 0;
};

/// The middle value (of an even count, the upper middle one); 0 of none.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// How often class `truth` was taken for class `predicted`.
class ConfusionMatrix {
 public:
  explicit ConfusionMatrix(std::int64_t classes) : classes_(classes), counts_(static_cast<std::size_t>(classes * classes)) {}
  std::int64_t classes() const { return classes_; }
  std::int64_t at(std::int64_t truth, std::int64_t predicted) const { return counts_[index(truth, predicted)]; }
  /// Throws ValueError for a class outside 0..classes-1.
  void add(std::int64_t truth, std::int64_t predicted) {
    for (const std::int64_t c : {truth, predicted})
      TL_CHECK(c >= 0 && c < classes_, ValueError, "ConfusionMatrix", "class ", c, " is outside 0..", classes_ - 1);
    ++counts_[index(truth, predicted)];
    ++total_;
    correct_ += truth == predicted;
  }
  std::int64_t total() const { return total_; }
  std::int64_t correct() const { return correct_; }
  /// 0 when nothing was added.
  double accuracy() const { return total_ ? static_cast<double>(correct_) / static_cast<double>(total_) : 0; }

 private:
  std::size_t index(std::int64_t truth, std::int64_t predicted) const { return static_cast<std::size_t>(truth * classes_ + predicted); }
  std::int64_t classes_, total_ = 0, correct_ = 0;
  std::vector<std::int64_t> counts_;
};

}  // namespace tensorlite::metrics
