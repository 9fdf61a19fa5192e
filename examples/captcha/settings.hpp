// What the command line asks for.
#pragma once

#include "generator.hpp"

#include <optional>
#include <variant>

namespace captcha {

struct GenerateSettings {
  std::int64_t count = 0;
  std::string out, font;
  ImageSize size{128, 64};
  std::int64_t seed = 1;
  int threads = 0;  ///< 0: as many as this process may use
};

struct TrainSettings {
  std::string model, scale = "full";
  std::string device;                ///< "cpu", "gpu"; empty: the GPU when there is one, else the CPU
  std::vector<std::int64_t> epochs;  ///< of each stage, or of all together; empty: the recipe's
  std::vector<double> lr;            ///< of each stage; empty: the recipe's
  std::optional<std::int64_t> batch, steps;
  std::optional<std::int64_t> patience;    ///< 0: no stage ends early
  std::optional<std::int64_t> validation;  ///< batches after each epoch
  std::int64_t test = 12800;               ///< pictures to test with at the end
  std::int64_t seed = 1;
  int threads = 0;
  std::string precision = "highest";
  bool graph = false, autotune = false;
  double pause_after = 0;  ///< seconds; 0: never
  std::string checkpoint, resume, report, json, font;
};

struct EvaluateSettings {
  std::string checkpoint, data, device, json, font;
  std::int64_t count = 12800;
  std::int64_t seed = 1;
  int threads = 0;
};

struct ReadSettings {
  std::string checkpoint, device;
  std::vector<std::string> pictures;
  int threads = 0;
};

using Settings = std::variant<GenerateSettings, TrainSettings, EvaluateSettings, ReadSettings>;

/// What parse() found: settings to run with, or an exit code to end with.
struct Parsed {
  std::optional<Settings> settings;
  int exit_code = 0;
};

/// Prints help to stdout, or one sentence about a bad argument to stderr (exit code 2).
Parsed parse(int argc, char** argv);

}  // namespace captcha
