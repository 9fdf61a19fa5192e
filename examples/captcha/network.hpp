// A trained network from its checkpoint, and where it runs.
#pragma once

#include "recipe.hpp"

#include <map>

namespace captcha {

/// What a checkpoint must say for its weights to be those of a recipe's network.
std::map<std::string, std::string> network_identity(const Recipe& recipe);

struct Network {
  Recipe recipe;
  std::unique_ptr<tensorlite::nn::Module> model;  ///< in evaluation mode
};
/// Throws IoError: no checkpoint, one of another program, or one whose weights do not fit.
Network load_network(const std::string& checkpoint);

/// "cpu" or "gpu": the one asked for, else the GPU when there is one.
std::string chosen_device(const std::string& asked);
/// Growing memory for every GPU, threads, precision. Before the first operation.
void prepare_devices(int threads, const std::string& precision = "highest");
/// In words, for people: "AMD EPYC 7763 (avx2)".
std::string device_text(tensorlite::Device device);
/// Threads that draw pictures ahead. Beside a GPU the CPU has nothing else to do.
int loader_threads(tensorlite::Device device);

}  // namespace captcha
