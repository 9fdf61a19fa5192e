// The training loop.
#pragma once

#include "evaluate.hpp"
#include "settings.hpp"

#include <tensorlite/capture.hpp>
#include <tensorlite/io.hpp>

namespace captcha {

struct Outcome {
  tensorlite::report::Run run;
  std::int64_t parameters = 0;
  std::vector<double> first_losses;  ///< of the first steps, one by one: what two devices can be compared by
  double pictures_per_second = 0;    ///< in training, the median over the epochs
  bool paused = false;               ///< then there was no test
  Evaluation test;
  std::shared_ptr<const Pictures> test_pictures;
};

/// The recipe with what the command line overrides.
Recipe recipe_of(const TrainSettings& settings);

/// Trains on one device and says on stdout how it goes. The losses depend on the settings alone, not on the number of threads.
class Trainer {
 public:
  Trainer(const TrainSettings& settings, const Recipe& recipe, const std::string& device);
  Outcome run();

 private:
  struct Score {
    double loss = 0, accuracy = 0;
  };
  /// One step with pictures and classes; its loss and the network's choices.
  std::vector<tensorlite::Tensor> step(const std::vector<tensorlite::Tensor>& batch);
  Score train_epoch();
  Score validate();
  void begin_stage();
  /// After an epoch: does its stage go on? Otherwise the next one begins.
  void finish_epoch(const Score& validated);
  bool finished() const { return stage_ >= recipe_.stages.size(); }
  void report_epoch() const;
  void test(Outcome& outcome);
  void save() const;
  void resume();
  /// Everything that must be the same for a resumed run to go on as if it had not stopped.
  std::map<std::string, std::string> identity() const;
  std::shared_ptr<const DrawnPictures> pictures(std::int64_t first, std::int64_t count) const;
  tensorlite::data::DataLoaderOptions loading() const;

  const TrainSettings& settings_;
  const Recipe& recipe_;
  std::string device_name_;
  tensorlite::DeviceScope scope_;
  tensorlite::Device device_;
  Interpreter interpreter_;
  std::shared_ptr<const Generator> generator_;
  std::unique_ptr<tensorlite::nn::Module> model_;
  tensorlite::data::DataLoader loader_, validation_loader_;

  std::size_t stage_ = 0;
  std::int64_t stage_epoch_ = 0;
  std::unique_ptr<tensorlite::optim::Optimizer> optimizer_;
  std::optional<tensorlite::CapturedStep> captured_;
  std::optional<tensorlite::optim::EarlyStopping> stopping_;
  tensorlite::StateDict best_;  ///< weights of the stage's best epoch, where the recipe watches for it
  std::vector<tensorlite::report::Epoch> epochs_;
  std::vector<double> first_losses_;
};

}  // namespace captcha
