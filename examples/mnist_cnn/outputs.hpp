// What a finished training leaves behind: figures, a report, Kaggle's answers.
#pragma once

#include "trainer.hpp"

namespace mnist_cnn {

/// {"runs": [...]}, one entry per device.
std::string to_json(const Recipe& recipe, const std::vector<Outcome>& outcomes);
/// "ImageId,Label", ids from 1.
std::string to_submission(const std::vector<int>& answers);
tensorlite::report::Report make_report(const Settings& settings, const Recipe& recipe, const Digits& digits,
                                       const std::vector<Outcome>& outcomes);

}  // namespace mnist_cnn
