// The two digit networks and how each is trained.
#pragma once

#include "settings.hpp"

#include <tensorlite/nn.hpp>
#include <tensorlite/optim.hpp>

#include <memory>

namespace mnist_cnn {

/// How a model is trained, with what the command line overrides.
struct Recipe {
  std::string model, optimizer;
  std::int64_t epochs = 0, batch = 0;
  double lr = 0;
  double gamma = 0;                ///< of pytorch's schedule: the learning rate's factor per epoch
  double mean = 0, deviation = 1;  ///< a pixel p becomes (p / 255 - mean) / deviation
  bool own_validation = false;     ///< the schedule watches validation figures, so a tenth of the training images is kept for them
};

Recipe make_recipe(const Settings& settings);

/// pytorch: the network of PyTorch's MNIST example, 1,199,882 parameters.
/// ghouzam: that of the Kaggle kernel "Introduction to CNN Keras", 887,530 parameters.
std::unique_ptr<tensorlite::nn::Module> make_model(const Recipe& recipe);

std::unique_ptr<tensorlite::optim::Optimizer> make_optimizer(const Recipe& recipe, const tensorlite::nn::Module& model);
/// "Adadelta, lr 1, rho 0.9, eps 1e-06"
std::string describe_optimizer(const Recipe& recipe);

/// The model's learning-rate schedule. The optimizer must outlive it.
class Schedule {
 public:
  Schedule(const Recipe& recipe, tensorlite::optim::Optimizer& optimizer);
  /// After an epoch.
  void step(const tensorlite::optim::Metrics& metrics);
  tensorlite::StateDict state_dict() const;
  void load_state_dict(const tensorlite::StateDict& dict);
  static std::string describe(const Recipe& recipe);

 private:
  std::optional<tensorlite::optim::StepLR> steps_;
  std::optional<tensorlite::optim::ReduceLROnPlateau> plateau_;
};

}  // namespace mnist_cnn
