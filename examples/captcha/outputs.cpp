#include "outputs.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace captcha {

namespace tl = tensorlite;
using nlohmann::ordered_json;
using tl::detail::concat;

namespace {

constexpr std::size_t kSamplesShown = 24, kHardestShown = 16;

ordered_json letters_json(const Evaluation& evaluation) {
  ordered_json letters = ordered_json::object();
  for (const auto& [letter, errors] : evaluation.letters())
    letters[std::string(1, letter)] = {{"shown", errors.shown}, {"misread", errors.wrong}};
  return letters;
}

std::string stages_text(const Recipe& recipe) {
  std::string text;
  for (const Stage& stage : recipe.stages)
    text += concat(text.empty() ? "" : ", then ", recipe.patience > 0 ? "up to " : "", stage.epochs, " epochs at ", stage.lr);
  if (recipe.patience > 0)
    text += concat(", each until ", recipe.patience, " epochs without a better validation loss, from its best epoch on");
  return text;
}

}  // namespace

std::string to_json(const TrainSettings& settings, const Recipe& recipe, const Outcome& outcome) {
  ordered_json epochs = ordered_json::array(), stages = ordered_json::array();
  for (const auto& e : outcome.run.epochs)
    epochs.push_back(
        {{"loss", e.loss}, {"accuracy", e.accuracy}, {"val_loss", e.val_loss}, {"val_accuracy", e.val_accuracy}, {"seconds", e.seconds}});
  for (const Stage& stage : recipe.stages) stages.push_back({{"lr", stage.lr}, {"epochs", stage.epochs}});
  ordered_json figures{{"model", recipe.model},
                       {"size", recipe.scale},
                       {"device", outcome.run.name},
                       {"device_name", outcome.run.device},
                       {"threads", outcome.run.threads},
                       {"precision", settings.precision},
                       {"parameters", outcome.parameters},
                       {"batch", recipe.batch},
                       {"steps", recipe.steps},
                       {"stages", stages},
                       {"first_losses", outcome.first_losses},
                       {"epochs", epochs},
                       {"paused", outcome.paused},
                       {"pictures_per_second", outcome.pictures_per_second},
                       {"seconds_total", outcome.run.seconds_total}};
  if (!outcome.paused) {
    figures["test_count"] = outcome.test.readings.size();
    figures["test_accuracy"] = outcome.run.test_accuracy;
    figures["test_loss"] = outcome.run.test_loss;
    figures["letters"] = letters_json(outcome.test);
  }
  return figures.dump(2) + "\n";
}

std::string to_json(const Recipe& recipe, const Evaluation& evaluation) {
  const ordered_json figures{{"model", recipe.model},
                             {"size", recipe.scale},
                             {"count", evaluation.readings.size()},
                             {"right", evaluation.right()},
                             {"accuracy", evaluation.accuracy()},
                             {"loss", evaluation.mean_loss()},
                             {"seconds", evaluation.seconds},
                             {"letters", letters_json(evaluation)}};
  return figures.dump(2) + "\n";
}

tl::report::Report make_report(const TrainSettings& settings, const Recipe& recipe, const Outcome& outcome) {
  const std::size_t epochs = outcome.run.epochs.size();
  tl::report::Report report{
      concat("Captchas: model ", recipe.model, recipe.scale == "full" ? "" : " (small)", ", ", epochs, epochs == 1 ? " epoch" : " epochs"),
      {outcome.run},
      {}};
  std::vector<Reading> samples(
      outcome.test.readings.begin(),
      outcome.test.readings.begin() + static_cast<std::ptrdiff_t>(std::min(outcome.test.readings.size(), kSamplesShown)));
  report.galleries = {{"Samples", "The first test pictures with what they say, and what was read where that is something else.",
                       pictures_of(samples, *outcome.test_pictures)},
                      {"Hardest cases", "The test pictures of the largest loss, worst first.",
                       pictures_of(outcome.test.hardest(kHardestShown), *outcome.test_pictures)}};
  report.tables = {error_table(outcome.test)};
  report.facts = {{"model", concat(recipe.model, " (", recipe.scale, "), ", outcome.parameters, " parameters")},
                  {"pictures", concat(recipe.image.width, "x", recipe.image.height, ", ", recipe.alphabet.size(), " letters, ",
                                      recipe.steps * recipe.batch, " new ones an epoch")},
                  {"validation", concat(recipe.validation_steps * recipe.batch, " pictures, the same after every epoch")},
                  {"test", concat(outcome.test.readings.size(), " pictures seen in neither; accuracy is of whole texts")},
                  {"optimizer", describe_optimizer(recipe)},
                  {"stages", stages_text(recipe)},
                  {"batch", std::to_string(recipe.batch)},
                  {"precision", settings.precision},
                  {"seed", std::to_string(settings.seed)},
                  {"tensorlite", TENSORLITE_VERSION},
                  {"compiler", concat("C++20, ", __VERSION__)},
                  {outcome.run.name, concat(outcome.run.device, ", ", outcome.run.threads, " threads")}};
  return report;
}

}  // namespace captcha
