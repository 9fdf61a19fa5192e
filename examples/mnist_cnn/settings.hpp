// What the command line asks for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mnist_cnn {

struct Settings {
  std::vector<std::string> devices;  ///< "cpu", "gpu"; empty: the GPU when there is one, else the CPU
  std::string data, kaggle;
  std::string model = "pytorch";
  std::optional<std::string> optimizer;
  std::optional<std::int64_t> epochs, batch;
  std::optional<double> lr, gamma;
  bool augment = false;
  bool graph = false, deterministic = false, autotune = false;
  std::string precision = "highest";  ///< of float32 products: highest or tf32
  std::int64_t seed = 1;
  int threads = 0;         ///< 0: the library's default
  std::int64_t limit = 0;  ///< 0: all
  std::string checkpoint, resume, submission, report, json;
};

/// What parse() found: settings to run with, or an exit code to end with.
struct Parsed {
  std::optional<Settings> settings;
  int exit_code = 0;
};

/// Prints help to stdout, or one sentence about a bad argument to stderr (exit code 2).
Parsed parse(int argc, char** argv);

}  // namespace mnist_cnn
