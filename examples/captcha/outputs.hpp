// What a finished training leaves behind: figures and a report.
#pragma once

#include "trainer.hpp"

namespace captcha {

std::string to_json(const TrainSettings& settings, const Recipe& recipe, const Outcome& outcome);
std::string to_json(const Recipe& recipe, const Evaluation& evaluation);
tensorlite::report::Report make_report(const TrainSettings& settings, const Recipe& recipe, const Outcome& outcome);

}  // namespace captcha
