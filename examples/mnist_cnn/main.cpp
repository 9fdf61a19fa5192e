// mnist_cnn: trains the digit CNN. Exit code 0, 1 (it failed) or 2 (the arguments are wrong).
#include "outputs.hpp"

#include <tensorlite/io.hpp>

#include <iostream>

using namespace mnist_cnn;
namespace tl = tensorlite;

namespace {

std::vector<std::string> chosen_devices(const Settings& settings) {
  if (!settings.devices.empty()) return settings.devices;
  return {tl::config::list_physical_devices("GPU").empty() ? "cpu" : "gpu"};
}

void print_result(const tl::report::Run& run) {
  std::vector<double> seconds;
  for (const auto& epoch : run.epochs) seconds.push_back(epoch.seconds);
  std::printf("%s: test accuracy %.4f, test loss %.4f, %s per epoch, %s in all\n", run.name.c_str(), run.test_accuracy, run.test_loss,
              tl::report::format_duration(tl::metrics::median(seconds)).c_str(), tl::report::format_duration(run.seconds_total).c_str());
  std::fflush(stdout);
}

void train(const Settings& settings) {
  for (const auto& gpu : tl::config::list_physical_devices("GPU")) tl::config::set_memory_growth(gpu, true);
  if (settings.threads > 0) tl::config::set_num_threads(settings.threads);
  tl::config::set_float32_precision(settings.precision == "tf32" ? tl::Float32Precision::tf32 : tl::Float32Precision::highest);
  tl::config::set_deterministic(settings.deterministic);
  tl::config::set_autotune(settings.autotune);
  const Recipe recipe = make_recipe(settings);
  const Digits digits = read_digits(settings, recipe);
  std::cout << digits.description << std::endl;
  std::vector<Outcome> outcomes;
  for (const std::string& device : chosen_devices(settings)) {
    outcomes.push_back(Trainer(settings, recipe, digits, device).run());
    print_result(outcomes.back().run);
  }
  if (!settings.json.empty()) tl::io::write_text(settings.json, to_json(recipe, outcomes));
  if (!settings.submission.empty()) tl::io::write_text(settings.submission, to_submission(outcomes.back().answers));
  if (!settings.report.empty())
    std::cout << "report: " << tl::report::write_report(settings.report, make_report(settings, recipe, digits, outcomes)) << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  const Parsed parsed = parse(argc, argv);
  if (!parsed.settings) return parsed.exit_code;
  try {
    train(*parsed.settings);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "mnist_cnn: " << error.what() << std::endl;
    return 1;
  }
}
