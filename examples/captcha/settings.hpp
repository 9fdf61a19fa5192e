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

using Settings = std::variant<GenerateSettings>;

/// What parse() found: settings to run with, or an exit code to end with.
struct Parsed {
  std::optional<Settings> settings;
  int exit_code = 0;
};

/// Prints help to stdout, or one sentence about a bad argument to stderr (exit code 2).
Parsed parse(int argc, char** argv);

}  // namespace captcha
