// captcha: draws captchas, trains networks that read them, and reads pictures. Exit code 0, 1 (it failed) or 2 (the arguments are wrong).
#include "commands.hpp"

#include <iostream>

namespace {

void run(const captcha::GenerateSettings& settings) { captcha::generate(settings); }
void run(const captcha::TrainSettings& settings) { captcha::train(settings); }
void run(const captcha::EvaluateSettings& settings) { captcha::evaluate(settings); }
void run(const captcha::ReadSettings& settings) { captcha::read(settings); }

}  // namespace

int main(int argc, char** argv) {
  const captcha::Parsed parsed = captcha::parse(argc, argv);
  if (!parsed.settings) return parsed.exit_code;
  try {
    std::visit([](const auto& settings) { run(settings); }, *parsed.settings);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "captcha: " << error.what() << std::endl;
    return 1;
  }
}
