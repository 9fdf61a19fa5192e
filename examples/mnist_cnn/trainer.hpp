// The training loop.
#pragma once

#include "feed.hpp"

#include <tensorlite/capture.hpp>
#include <tensorlite/io.hpp>
#include <tensorlite/report.hpp>

namespace mnist_cnn {

struct Outcome {
  tensorlite::report::Run run;
  std::int64_t parameters = 0;
  std::vector<int> answers;          ///< to the unlabelled images
  std::vector<double> first_losses;  ///< of the first steps, 100 at most
};

/// Trains on one device and says on stdout how it goes. The losses depend on the settings alone, not on the number of threads.
class Trainer {
 public:
  Trainer(const Settings& settings, const Recipe& recipe, const Digits& digits, const std::string& device);
  Outcome run();

 private:
  struct Score {
    double loss = 0, accuracy = 0;
  };
  Score train_epoch(std::int64_t epoch);
  /// Loss and number of hits of one batch.
  std::vector<tensorlite::Tensor> train_step(const Feed::Inputs& inputs);
  Score validate();
  void test(Outcome& outcome);
  std::vector<int> answer();
  void report_epoch(const tensorlite::report::Epoch& epoch) const;
  void save() const;
  void resume();
  /// Everything that must be the same for a resumed run to go on as if it had not stopped.
  std::map<std::string, std::string> identity() const;

  const Settings& settings_;
  const Recipe& recipe_;
  const Digits& digits_;
  std::string device_name_;
  tensorlite::DeviceScope scope_;
  tensorlite::Device device_;
  std::unique_ptr<tensorlite::nn::Module> model_;
  std::unique_ptr<tensorlite::optim::Optimizer> optimizer_;
  Schedule schedule_;
  std::unique_ptr<Feed> train_feed_, validation_feed_, test_feed_;
  std::optional<tensorlite::CapturedStep> captured_step_;  ///< of whole batches
  std::vector<double> first_losses_;
  std::vector<tensorlite::report::Epoch> epochs_;
};

}  // namespace mnist_cnn
