#include "outputs.hpp"

#include <nlohmann/json.hpp>

namespace mnist_cnn {

namespace tl = tensorlite;
using tl::detail::concat;

std::string to_json(const Recipe& recipe, const std::vector<Outcome>& outcomes) {
  using nlohmann::ordered_json;
  ordered_json runs = ordered_json::array();
  for (const Outcome& outcome : outcomes) {
    ordered_json epochs = ordered_json::array();
    for (const auto& e : outcome.run.epochs)
      epochs.push_back(
          {{"loss", e.loss}, {"accuracy", e.accuracy}, {"val_loss", e.val_loss}, {"val_accuracy", e.val_accuracy}, {"seconds", e.seconds}});
    runs.push_back({{"model", recipe.model},
                    {"device", outcome.run.name},
                    {"threads", outcome.run.threads},
                    {"parameters", outcome.parameters},
                    {"epochs", epochs},
                    {"first_losses", outcome.first_losses},
                    {"test_accuracy", outcome.run.test_accuracy},
                    {"test_loss", outcome.run.test_loss},
                    {"seconds_total", outcome.run.seconds_total}});
  }
  return ordered_json{{"runs", runs}}.dump(2) + "\n";
}

std::string to_submission(const std::vector<int>& answers) {
  std::string text = "ImageId,Label\n";
  for (std::size_t i = 0; i < answers.size(); ++i) text += concat(i + 1, ",", answers[i], "\n");
  return text;
}

tl::report::Report make_report(const Settings& settings, const Recipe& recipe, const Digits& digits, const std::vector<Outcome>& outcomes) {
  tl::report::Report report{
      concat("Handwritten digits: model ", recipe.model, ", ", recipe.epochs, recipe.epochs == 1 ? " epoch" : " epochs"), {}, {}};
  for (const Outcome& outcome : outcomes) report.runs.push_back(outcome.run);
  report.facts = {{"model", concat(recipe.model, ", ", outcomes.at(0).parameters, " parameters")},
                  {"data", digits.description},
                  {"validation", digits.validation == digits.test ? "the test digits" : "digits held out of the training set"},
                  {"optimizer", describe_optimizer(recipe)},
                  {"learning rate", Schedule::describe(recipe)},
                  {"batch", std::to_string(recipe.batch)},
                  {"augmentation", settings.augment ? "rotation 10 degrees, zoom 10 %, shift 10 %" : "none"},
                  {"seed", std::to_string(settings.seed)},
                  {"tensorlite", TENSORLITE_VERSION},
                  {"compiler", concat("C++20, ", __VERSION__)}};
  for (const Outcome& outcome : outcomes)
    report.facts.push_back({outcome.run.name, concat(outcome.run.device, ", ", outcome.run.threads, " threads")});
  return report;
}

}  // namespace mnist_cnn
