#include "settings.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <sstream>

namespace mnist_cnn {

namespace {

/// One sentence about the first bad argument; "" when all are good.
std::string complaint(const Settings& s, const std::string& devices) {
  const auto positive = [](const char* flag, auto value) {
    std::ostringstream text;
    if (value && !(*value > 0)) text << flag << " must be positive, it is " << *value;
    return text.str();
  };
  for (const std::string& device : s.devices)
    if ((device != "cpu" && device != "gpu") || std::count(s.devices.begin(), s.devices.end(), device) > 1)
      return "--device must be cpu, gpu or cpu,gpu, it is '" + devices + "'";
  for (const std::string& text : {positive("--epochs", s.epochs), positive("--batch", s.batch), positive("--lr", s.lr)})
    if (!text.empty()) return text;
  if (s.lr && !std::isfinite(*s.lr)) return "--lr must be a finite number";
  if (s.gamma && !(*s.gamma > 0 && *s.gamma <= 1)) return "--gamma must be above 0 and at most 1, it is " + std::to_string(*s.gamma);
  if (s.gamma && s.model != "pytorch") return "--gamma belongs to --model pytorch; ghouzam's learning rate follows the validation accuracy";
  if (s.seed < 0) return "--seed must not be negative, it is " + std::to_string(s.seed);
  if (s.threads < 0) return "--threads must be positive, it is " + std::to_string(s.threads);
  if (s.limit < 0) return "--limit must be positive, it is " + std::to_string(s.limit);
  if (!s.data.empty() && !s.kaggle.empty()) return "--data and --kaggle exclude each other";
  if (!s.submission.empty() && s.kaggle.empty()) return "--submission needs --kaggle, whose test.csv it answers";
  if (s.devices.size() > 1 && !(s.checkpoint + s.resume).empty()) return "--checkpoint and --resume need a single --device";
  return "";
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  if (!text.empty() && text.back() == ',') parts.emplace_back();
  return parts;
}

}  // namespace

Parsed parse(int argc, char** argv) {
  Settings s;
  std::string devices;
  CLI::App app{"Trains a convolutional network on handwritten digits, on the CPU or a GPU.", "mnist_cnn"};
  app.add_option("--device", devices, "cpu, gpu or cpu,gpu (one run each); default: the GPU when there is one");
  app.add_option("--data", s.data, "folder with the four MNIST files (IDX, packed or not); default: the bundled sample");
  app.add_option("--kaggle", s.kaggle, "folder with train.csv and test.csv of Kaggle's Digit Recognizer; a tenth of train.csv validates");
  app.add_option("--model", s.model, "pytorch or ghouzam, with its recipe")
      ->check(CLI::IsMember({"pytorch", "ghouzam"}))
      ->capture_default_str();
  app.add_option("--epochs", s.epochs, "default: the model's");
  app.add_option("--batch", s.batch, "images per step; default: the model's");
  app.add_option("--lr", s.lr, "learning rate; default: the optimizer's");
  app.add_option("--gamma", s.gamma, "factor of the learning rate after every epoch of --model pytorch; default: 0.7");
  app.add_option("--optimizer", s.optimizer, "adadelta, adam, rmsprop or sgd; default: the model's")
      ->check(CLI::IsMember({"adadelta", "adam", "rmsprop", "sgd"}));
  app.add_flag("--augment", s.augment, "turn, zoom and shift the training images a little, anew every epoch");
  app.add_flag("--graph", s.graph, "on a GPU record a training step once and run it as a whole (a CUDA graph)");
  app.add_option("--precision", s.precision, "of float32 products on a GPU: highest, or tf32 (faster, 10 bits of mantissa)")
      ->check(CLI::IsMember({"highest", "tf32"}))
      ->capture_default_str();
  app.add_flag("--deterministic", s.deterministic, "the same bits in every run on a GPU, too");
  app.add_flag("--autotune", s.autotune, "measure how the GPU convolves fastest instead of trusting heuristics");
  app.add_option("--seed", s.seed, "of weights, dropout, order and augmentation")->capture_default_str();
  app.add_option("--threads", s.threads, "CPU threads; default: all that this process may use");
  app.add_option("--limit", s.limit, "at most so many training and so many test images");
  app.add_option("--checkpoint", s.checkpoint, "write the state of training to this file after every epoch");
  app.add_option("--resume", s.resume, "go on from this checkpoint, as if training had not stopped");
  app.add_option("--submission", s.submission, "write the answers for Kaggle's test.csv to this file");
  app.add_option("--report", s.report, "write an HTML report into this folder");
  app.add_option("--json", s.json, "write the figures to this file");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return {std::nullopt, app.exit(error)};
    std::cerr << "mnist_cnn: " << error.what() << "; see --help\n";
    return {std::nullopt, 2};
  }
  s.devices = split(devices);
  if (const std::string text = complaint(s, devices); !text.empty()) {
    std::cerr << "mnist_cnn: " << text << '\n';
    return {std::nullopt, 2};
  }
  return {s, 0};
}

}  // namespace mnist_cnn
