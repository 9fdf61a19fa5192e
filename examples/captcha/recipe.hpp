// The three networks and how each is trained.
#pragma once

#include "codec.hpp"
#include "generator.hpp"

#include <tensorlite/nn.hpp>
#include <tensorlite/optim.hpp>

#include <memory>

namespace captcha {

/// Epochs with an optimizer of their own.
struct Stage {
  double lr = 0;
  std::int64_t epochs = 0;
};

struct Recipe {
  std::string model;  ///< cnn, ctc-gru or ctc-lstm
  std::string scale;  ///< full or small
  ImageSize image;
  std::string alphabet;
  Blank blank = Blank::none;

  // The network: blocks of convolutions, each with batch normalisation and ReLU, and a pool.
  std::int64_t shrink = 1;        ///< pixels across that are averaged to one first
  std::int64_t convolutions = 2;  ///< in a block
  std::vector<std::int64_t> filters = {};
  std::vector<tensorlite::Size2d> pools = {};
  std::int64_t hidden = 128;  ///< of the recurrent layers, per direction

  // The training.
  std::int64_t batch = 128, steps = 1000, validation_steps = 100;
  std::vector<Stage> stages = {};
  bool amsgrad = false;
  tensorlite::optim::Convention convention = tensorlite::optim::Convention::pytorch;
  std::int64_t patience = 0;  ///< epochs without a better validation loss that end a stage, which then takes its best weights; 0: none do

  Codec codec() const { return Codec(alphabet, blank); }
  bool recurrent() const { return blank != Blank::none; }
  /// Places along the picture's width that a recurrent network reads letters from.
  std::int64_t frames() const;
};

/// Throws ValueError for a model or scale that there is not.
Recipe make_recipe(const std::string& model, const std::string& scale);

/// What is published as a network's size: the trained parameters and, as Keras counts, its models' running statistics.
std::int64_t published_size(const Recipe& recipe, const tensorlite::nn::Module& model);

/// Pictures [N, height, width, 3] in 0..1 to scores: [N, 4, letters] of cnn, [frames, N, letters and blank] of the others.
/// cnn: 2,653,360 parameters; ctc-gru: 3,157,317; ctc-lstm: 3,417,541 (full).
std::unique_ptr<tensorlite::nn::Module> make_model(const Recipe& recipe);

std::unique_ptr<tensorlite::optim::Optimizer> make_optimizer(const Recipe& recipe, double lr, const tensorlite::nn::Module& model);
/// "Adam (Keras's), amsgrad, lr 0.001 then 0.0001"
std::string describe_optimizer(const Recipe& recipe);

}  // namespace captcha
