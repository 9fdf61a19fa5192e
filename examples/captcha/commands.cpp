#include "commands.hpp"

#include "network.hpp"
#include "outputs.hpp"
#include "png_file.hpp"

#include <tensorlite/tensorlite.hpp>

#include <algorithm>
#include <iostream>

namespace captcha {

namespace tl = tensorlite;
using tl::detail::concat;

namespace {

std::string percent(double fraction) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f %%", 100 * fraction);
  return text;
}

void print_evaluation(const std::string& what, const Evaluation& evaluation) {
  std::cout << what << ": " << evaluation.right() << " of " << evaluation.readings.size() << " texts right, "
            << percent(evaluation.accuracy()) << "; loss " << evaluation.mean_loss() << std::endl;
  if (const std::string errors = describe_errors(evaluation, 5); !errors.empty())
    std::cout << "letters most often misread: " << errors << std::endl;
}

tl::Device device_of(const std::string& name) { return name == "gpu" ? tl::gpu_device() : tl::cpu_device(); }

}  // namespace

void train(const TrainSettings& settings) {
  prepare_devices(settings.threads, settings.precision);
  tl::config::set_autotune(settings.autotune);
  const Recipe recipe = recipe_of(settings);
  const Outcome outcome = Trainer(settings, recipe, chosen_device(settings.device)).run();
  std::cout << tl::report::format_duration(outcome.run.seconds_total) << " in all, "
            << static_cast<std::int64_t>(outcome.pictures_per_second) << " pictures a second" << std::endl;
  if (!settings.json.empty()) tl::io::write_text(settings.json, to_json(settings, recipe, outcome));
  if (outcome.paused) {
    std::cout << "paused; --resume " << settings.checkpoint << " goes on" << std::endl;
    return;
  }
  print_evaluation("test", outcome.test);
  if (!settings.report.empty())
    std::cout << "report: " << tl::report::write_report(settings.report, make_report(settings, recipe, outcome)) << std::endl;
}

void evaluate(const EvaluateSettings& settings) {
  prepare_devices(settings.threads);
  const std::string device = chosen_device(settings.device);
  const tl::DeviceScope scope(device == "gpu" ? "/GPU:0" : "/CPU:0");
  const Network network = load_network(settings.checkpoint);
  const Recipe& recipe = network.recipe;
  const Interpreter interpreter(recipe);
  std::shared_ptr<const Pictures> pictures;
  if (settings.data.empty()) {
    const auto generator = std::make_shared<const Generator>(recipe.image, recipe.alphabet, static_cast<std::uint64_t>(settings.seed),
                                                             std::make_shared<const Glyphs>(settings.font, recipe.alphabet));
    pictures = std::make_shared<const DrawnPictures>(generator, interpreter, kFirstEvaluation, settings.count);
  } else {
    pictures = std::make_shared<const FolderPictures>(settings.data, recipe.image);
    for (std::int64_t i = 0; i < pictures->size(); ++i) interpreter.encode({pictures->text(i)});  // complains before the work
  }
  const int workers = loader_threads(device_of(device));
  const Evaluation evaluation =
      evaluate(*network.model, interpreter, pictures,
               {.batch_size = recipe.batch, .workers = workers, .queue = 2 * std::max(workers, 1), .device = device_of(device)});
  print_evaluation(settings.data.empty() ? "fresh pictures" : settings.data, evaluation);
  if (!settings.json.empty()) tl::io::write_text(settings.json, to_json(recipe, evaluation));
}

void read(const ReadSettings& settings) {
  prepare_devices(settings.threads);
  const std::string device = chosen_device(settings.device);
  const tl::DeviceScope scope(device == "gpu" ? "/GPU:0" : "/CPU:0");
  const tl::NoGradGuard no_grad;
  const Network network = load_network(settings.checkpoint);
  const Interpreter interpreter(network.recipe);
  const tl::Tensor pictures = empty_pictures(static_cast<std::int64_t>(settings.pictures.size()), network.recipe.image);
  std::uint8_t* room = pictures.data<std::uint8_t>();
  for (const std::string& path : settings.pictures) {
    const Picture picture = read_png(path, network.recipe.image);
    room = std::copy(picture.bytes.begin(), picture.bytes.end(), room);
  }
  const auto texts = interpreter.texts(interpreter.choices((*network.model)(to_input(pictures.to(device_of(device))))));
  for (std::size_t i = 0; i < texts.size(); ++i) std::cout << settings.pictures[i] << ": " << texts[i] << '\n';
}

}  // namespace captcha
