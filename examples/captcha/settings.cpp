#include "settings.hpp"

#include <tensorlite/base.hpp>

#include <CLI/CLI.hpp>

#include <charconv>
#include <iostream>

namespace captcha {

namespace {

/// "128x64"; nothing when it is something else.
std::optional<ImageSize> parse_size(const std::string& text) {
  ImageSize size;
  const char *end = text.data() + text.size(), *at = text.data();
  const auto width = std::from_chars(at, end, size.width);
  if (width.ec != std::errc() || width.ptr == end || *width.ptr != 'x') return std::nullopt;
  const auto height = std::from_chars(width.ptr + 1, end, size.height);
  if (height.ec != std::errc() || height.ptr != end) return std::nullopt;
  return size;
}

std::string not_positive(const char* flag, std::int64_t value) {
  return value > 0 ? "" : tensorlite::detail::concat(flag, " must be positive, it is ", value);
}

std::string complaint(GenerateSettings& s, const std::string& size) {
  const auto parsed = parse_size(size);
  if (!parsed || parsed->width < 16 || parsed->height < 16 || parsed->width > 4096 || parsed->height > 4096)
    return "--size must be WIDTHxHEIGHT, each from 16 to 4096, it is '" + size + "'";
  s.size = *parsed;
  if (s.seed < 0) return tensorlite::detail::concat("--seed must not be negative, it is ", s.seed);
  if (s.threads < 0) return tensorlite::detail::concat("--threads must be positive, it is ", s.threads);
  return not_positive("--count", s.count);
}

}  // namespace

Parsed parse(int argc, char** argv) {
  CLI::App app{"Draws captchas, trains networks that read them, and reads pictures.", "captcha"};
  app.require_subcommand(1);
  GenerateSettings generate;
  generate.font = Glyphs::default_font();
  std::string size = "128x64";
  CLI::App* command = app.add_subcommand("generate", "draw captchas into a folder, with their texts in labels.csv");
  command->add_option("--count", generate.count, "how many")->required();
  command->add_option("--out", generate.out, "the folder, made when missing")->required();
  command->add_option("--size", size, "width x height in pixels")->capture_default_str();
  command->add_option("--seed", generate.seed, "of all random numbers")->capture_default_str();
  command->add_option("--font", generate.font, "a monospaced font file")->capture_default_str();
  command->add_option("--threads", generate.threads, "default: all that this process may use");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return {std::nullopt, app.exit(error)};
    std::cerr << "captcha: " << error.what() << "; see --help\n";
    return {std::nullopt, 2};
  }
  if (const std::string text = complaint(generate, size); !text.empty()) {
    std::cerr << "captcha: " << text << '\n';
    return {std::nullopt, 2};
  }
  return {generate, 0};
}

}  // namespace captcha
