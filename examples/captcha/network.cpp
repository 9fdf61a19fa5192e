#include "network.hpp"

#include <tensorlite/io.hpp>
#include <tensorlite/tensorlite.hpp>

#include <algorithm>

namespace captcha {

namespace tl = tensorlite;
using tl::detail::concat;

std::map<std::string, std::string> network_identity(const Recipe& recipe) {
  return {{"program", "captcha"}, {"model", recipe.model}, {"size", recipe.scale}};
}

Network load_network(const std::string& checkpoint) {
  tl::io::Checkpoint loaded = tl::io::load_checkpoint(checkpoint);
  const auto entry = [&](const char* key) {
    const auto at = loaded.metadata.find(key);
    return at == loaded.metadata.end() ? std::string() : at->second;
  };
  const auto fail = [&](const std::string& text) { throw tl::IoError("load_network", checkpoint, text); };
  if (entry("program") != "captcha") fail("is no checkpoint of captcha");
  Network network;
  try {
    network.recipe = make_recipe(entry("model"), entry("size"));
    network.model = make_model(network.recipe);
    network.model->load_state_dict(loaded.parts["model"]);
  } catch (const tl::ValueError& error) { fail(concat("holds no weights of model ", entry("model"), ": ", error.what())); }
  network.model->eval();
  return network;
}

std::string chosen_device(const std::string& asked) {
  if (!asked.empty()) return asked;
  return tl::config::list_physical_devices("GPU").empty() ? "cpu" : "gpu";
}

void prepare_devices(int threads, const std::string& precision) {
  for (const auto& gpu : tl::config::list_physical_devices("GPU")) tl::config::set_memory_growth(gpu, true);
  if (threads > 0) tl::config::set_num_threads(threads);
  tl::config::set_float32_precision(precision == "tf32" ? tl::Float32Precision::tf32 : tl::Float32Precision::highest);
}

std::string device_text(tl::Device device) {
  std::string name, detail;
  const auto physical = tl::config::get_visible_devices(device.is_gpu() ? "GPU" : "CPU");
  if (physical.empty()) return tl::short_name(device);
  for (const auto& [key, value] : tl::config::get_device_details(physical[0])) {
    if (key == "device_name") name = value;
    if (key == "instruction_set" || key == "compute_capability") detail = value;
  }
  return detail.empty() ? name : concat(name, " (", detail, ")");
}

int loader_threads(tl::Device device) {
  const int threads = tl::config::get_num_threads();
  return device.is_gpu() ? std::clamp(threads - 1, 1, 14) : std::min(threads - 1, 1);
}

}  // namespace captcha
