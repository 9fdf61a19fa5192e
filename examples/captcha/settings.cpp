#include "settings.hpp"

#include <tensorlite/base.hpp>

#include <CLI/CLI.hpp>

#include <charconv>
#include <cmath>
#include <iostream>
#include <sstream>

namespace captcha {

namespace {

using tensorlite::detail::concat;

/// The first bad argument of a command, in one sentence.
class Complaint : public std::runtime_error {
  using runtime_error::runtime_error;
};
template <class... Parts> void require(bool good, const Parts&... text) {
  if (!good) throw Complaint(concat(text...));
}

/// "128x64"
ImageSize to_size(const std::string& text) {
  ImageSize size;
  const char* end = text.data() + text.size();
  const auto width = std::from_chars(text.data(), end, size.width);
  bool good = width.ec == std::errc() && width.ptr != end && *width.ptr == 'x';
  if (good) {
    const auto height = std::from_chars(width.ptr + 1, end, size.height);
    good = height.ec == std::errc() && height.ptr == end;
  }
  const auto fits = [](int n) { return n >= 16 && n <= 4096; };
  require(good && fits(size.width) && fits(size.height), "--size must be WIDTHxHEIGHT, each from 16 to 4096, it is '", text, "'");
  return size;
}

/// "30,10": positive numbers.
template <class T> std::vector<T> to_list(const char* flag, const std::string& text) {
  std::vector<T> values;
  std::istringstream parts(text + ",");
  for (std::string part; !text.empty() && std::getline(parts, part, ',');) {
    T value{};
    const auto result = std::from_chars(part.data(), part.data() + part.size(), value);
    require(result.ec == std::errc() && result.ptr == part.data() + part.size() && value > 0 && std::isfinite(static_cast<double>(value)),
            flag, " must be positive numbers with commas between, it is '", text, "'");
    values.push_back(value);
  }
  return values;
}

void check_common(std::int64_t seed, int threads) {
  require(seed >= 0, "--seed must not be negative, it is ", seed);
  require(threads >= 0, "--threads must be positive, it is ", threads);
}

void check(const GenerateSettings& s) {
  check_common(s.seed, s.threads);
  require(s.count > 0, "--count must be positive, it is ", s.count);
}

void check(const TrainSettings& s) {
  check_common(s.seed, s.threads);
  for (const auto& [flag, value] : {std::pair{"--batch", s.batch}, {"--steps", s.steps}, {"--validation", s.validation}})
    require(!value || *value > 0, flag, " must be positive, it is ", value.value_or(0));
  require(!s.patience || *s.patience >= 0, "--patience must not be negative, it is ", s.patience.value_or(0));
  require(s.test > 0, "--test must be positive, it is ", s.test);
  require(s.pause_after >= 0, "--pause-after must not be negative, it is ", s.pause_after);
  require(s.pause_after == 0 || !s.checkpoint.empty(), "--pause-after needs --checkpoint, to go on from");
  require(s.epochs.size() <= 1 || s.epochs.size() == (s.lr.empty() ? 2 : s.lr.size()), "--epochs has ", s.epochs.size(), " stages, --lr ",
          s.lr.empty() ? 2 : s.lr.size());
}

void check(const EvaluateSettings& s) {
  check_common(s.seed, s.threads);
  require(s.count > 0, "--count must be positive, it is ", s.count);
}

void check(const ReadSettings& s) { check_common(0, s.threads); }

/// The subcommands, and the settings that they fill.
class CommandLine {
 public:
  CommandLine() {
    app_.require_subcommand(1);
    add_generate();
    add_train();
    add_evaluate();
    add_read();
  }

  CLI::App& app() { return app_; }
  Settings settings() {
    if (app_.got_subcommand("generate")) {
      generate_.size = to_size(size_);
      return checked(generate_);
    }
    if (app_.got_subcommand("evaluate")) return checked(evaluate_);
    if (app_.got_subcommand("read")) return checked(read_);
    train_.epochs = to_list<std::int64_t>("--epochs", epochs_);
    train_.lr = to_list<double>("--lr", lr_);
    return checked(train_);
  }

 private:
  template <class S> static Settings checked(const S& settings) {
    check(settings);
    return settings;
  }
  static void add_device(CLI::App* command, std::string& device) {
    command->add_option("--device", device, "cpu or gpu; default: the GPU when there is one")->check(CLI::IsMember({"cpu", "gpu"}));
  }
  static void add_threads(CLI::App* command, int& threads) {
    command->add_option("--threads", threads, "CPU threads; default: all that this process may use");
  }
  static void add_font(CLI::App* command, std::string& font) {
    font = Glyphs::default_font();
    command->add_option("--font", font, "a monospaced font file")->capture_default_str();
  }

  void add_generate() {
    CLI::App* command = app_.add_subcommand("generate", "draw captchas into a folder, with their texts in labels.csv");
    command->add_option("--count", generate_.count, "how many")->required();
    command->add_option("--out", generate_.out, "the folder, made when missing")->required();
    command->add_option("--size", size_, "width x height in pixels")->capture_default_str();
    command->add_option("--seed", generate_.seed, "of all random numbers")->capture_default_str();
    add_font(command, generate_.font);
    add_threads(command, generate_.threads);
  }

  void add_train() {
    TrainSettings& s = train_;
    CLI::App* command = app_.add_subcommand("train", "train a network on captchas that are drawn as it goes");
    command->add_option("--model", s.model, "cnn, ctc-gru or ctc-lstm, with its recipe")
        ->required()
        ->check(CLI::IsMember({"cnn", "ctc-gru", "ctc-lstm"}));
    command->add_option("--size", s.scale, "full, or small: digits only and a small network, for a CPU")
        ->check(CLI::IsMember({"full", "small"}))
        ->capture_default_str();
    add_device(command, s.device);
    command->add_option("--epochs", epochs_, "of both stages (30,10), or of all together; default: the recipe's");
    command->add_option("--lr", lr_, "learning rate of each stage (1e-4,1e-5); default: the recipe's");
    command->add_option("--batch", s.batch, "pictures per step; default: the recipe's");
    command->add_option("--steps", s.steps, "per epoch; default: the recipe's");
    command->add_option("--patience", s.patience,
                        "epochs without a better validation loss that end a stage, which then takes its best weights; 0: none do; "
                        "default: the recipe's");
    command->add_option("--validation", s.validation, "batches after each epoch; default: the recipe's");
    command->add_option("--test", s.test, "fresh pictures for the test at the end")->capture_default_str();
    command->add_option("--seed", s.seed, "of pictures, weights and dropout")->capture_default_str();
    command->add_option("--precision", s.precision, "of products and convolutions in training: highest, tf32 or bfloat16")
        ->check(CLI::IsMember({"highest", "tf32", "bfloat16"}))
        ->capture_default_str();
    command->add_flag("--graph", s.graph, "on a GPU record a training step once and run it as a whole (a CUDA graph)");
    command->add_flag("--autotune", s.autotune, "measure how the GPU convolves fastest instead of trusting heuristics");
    add_threads(command, s.threads);
    add_font(command, s.font);
    command->add_option("--checkpoint", s.checkpoint, "write the state of training to this file after every epoch");
    command->add_option("--resume", s.resume, "go on from this checkpoint, as if training had not stopped");
    command->add_option("--pause-after", s.pause_after, "seconds after which to end at the next checkpoint");
    command->add_option("--report", s.report, "write an HTML report into this folder");
    command->add_option("--json", s.json, "write the figures to this file");
  }

  void add_evaluate() {
    CLI::App* command = app_.add_subcommand("evaluate", "test a trained network on fresh captchas, or on those of a folder");
    command->add_option("--checkpoint", evaluate_.checkpoint, "what captcha train wrote")->required();
    command->add_option("--count", evaluate_.count, "fresh pictures")->capture_default_str();
    command->add_option("--data", evaluate_.data, "a folder with pictures and labels.csv, as captcha generate makes it");
    command->add_option("--seed", evaluate_.seed, "of the fresh pictures")->capture_default_str();
    command->add_option("--json", evaluate_.json, "write the figures to this file");
    add_device(command, evaluate_.device);
    add_threads(command, evaluate_.threads);
    add_font(command, evaluate_.font);
  }

  void add_read() {
    CLI::App* command = app_.add_subcommand("read", "print what pictures say");
    command->add_option("--checkpoint", read_.checkpoint, "what captcha train wrote")->required();
    command->add_option("pictures", read_.pictures, "PNG files")->required();
    add_device(command, read_.device);
    add_threads(command, read_.threads);
  }

  CLI::App app_{"Draws captchas, trains networks that read them, and reads pictures.", "captcha"};
  GenerateSettings generate_;
  TrainSettings train_;
  EvaluateSettings evaluate_;
  ReadSettings read_;
  std::string size_ = "128x64", epochs_, lr_;
};

}  // namespace

Parsed parse(int argc, char** argv) {
  CommandLine line;
  try {
    line.app().parse(argc, argv);
    return {line.settings(), 0};
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return {std::nullopt, line.app().exit(error)};
    std::cerr << "captcha: " << error.what() << "; see --help\n";
  } catch (const Complaint& complaint) { std::cerr << "captcha: " << complaint.what() << '\n'; }
  return {std::nullopt, 2};
}

}  // namespace captcha
