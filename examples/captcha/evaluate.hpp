// How well a network reads.
#pragma once

#include "pictures.hpp"

#include <tensorlite/report.hpp>

#include <map>

namespace captcha {

/// One picture that was read.
struct Reading {
  std::int64_t index = 0;
  std::string truth, read;
  double loss = 0;  ///< -log of the truth's probability
  bool right() const { return truth == read; }
};

/// What happened to one letter over all pictures.
struct LetterErrors {
  std::int64_t shown = 0, wrong = 0;
  std::map<char, std::int64_t> read_as;  ///< the wrong ones; '\0': missed
};

struct Evaluation {
  std::vector<Reading> readings;
  double seconds = 0;
  std::int64_t right() const;
  /// The share of texts that are right from end to end.
  double accuracy() const;
  double mean_loss() const;
  std::map<char, LetterErrors> letters() const;
  /// Largest loss first.
  std::vector<Reading> hardest(std::size_t count) const;
};

/// Reads all pictures; the network is in evaluation mode afterwards. Throws ValueError for texts that it cannot say.
Evaluation evaluate(tensorlite::nn::Module& model, const Interpreter& interpreter, std::shared_ptr<const Pictures> pictures,
                    const tensorlite::data::DataLoaderOptions& options);

/// "O 12 of 1400 (as 0: 11, as Q: 1)" and so on, worst first; "" when there are none.
std::string describe_errors(const Evaluation& evaluation, std::size_t most);
/// A row for each letter that was ever misread, worst first.
tensorlite::report::Table error_table(const Evaluation& evaluation);
/// The pictures of these readings with truth and reading.
std::vector<tensorlite::report::Picture> pictures_of(const std::vector<Reading>& readings, const Pictures& pictures);

}  // namespace captcha
