#include "recipe.hpp"

namespace mnist_cnn {

namespace tl = tensorlite;
namespace nn = tensorlite::nn;
namespace optim = tensorlite::optim;

namespace {

constexpr tl::Activation kRelu = tl::Activation::relu;

/// Source: pytorch/examples, mnist/main.py. It ends in logits; the loss holds the log-softmax.
struct PytorchNet : nn::Module {
  nn::Conv2d conv1{1, 32, 3, {.activation = kRelu}};
  nn::Conv2d conv2{32, 64, 3, {.activation = kRelu}};
  nn::MaxPool2d pool{2};
  nn::Dropout dropout1{0.25};
  nn::Linear fc1{12 * 12 * 64, 128, {.activation = kRelu}};
  nn::Dropout dropout2{0.5};
  nn::Linear fc2{128, 10};

  PytorchNet() : Module("PytorchNet") {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("pool", pool);
    register_module("dropout1", dropout1);
    register_module("fc1", fc1);
    register_module("dropout2", dropout2);
    register_module("fc2", fc2);
  }
  tl::Tensor forward(const tl::Tensor& images) override {
    const tl::Tensor features = dropout1(pool(conv2(conv1(images))));
    return fc2(dropout2(fc1(features.flatten(1))));
  }
};

/// Source: Y. Ghouzam, "Introduction to CNN Keras - 0.997 (top 6%)", Kaggle.
struct GhouzamNet : nn::Module {
  static nn::Conv2dOptions convolution() { return {.padding = tl::Padding::same(), .activation = kRelu, .init = nn::Init::keras}; }
  nn::Conv2d conv1{1, 32, 5, convolution()};
  nn::Conv2d conv2{32, 32, 5, convolution()};
  nn::MaxPool2d pool1{2};
  nn::Dropout dropout1{0.25};
  nn::Conv2d conv3{32, 64, 3, convolution()};
  nn::Conv2d conv4{64, 64, 3, convolution()};
  nn::MaxPool2d pool2{2};
  nn::Dropout dropout2{0.25};
  nn::Linear fc1{7 * 7 * 64, 256, {.activation = kRelu, .init = nn::Init::keras}};
  nn::Dropout dropout3{0.5};
  nn::Linear fc2{256, 10, {.init = nn::Init::keras}};

  GhouzamNet() : Module("GhouzamNet") {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("pool1", pool1);
    register_module("dropout1", dropout1);
    register_module("conv3", conv3);
    register_module("conv4", conv4);
    register_module("pool2", pool2);
    register_module("dropout2", dropout2);
    register_module("fc1", fc1);
    register_module("dropout3", dropout3);
    register_module("fc2", fc2);
  }
  tl::Tensor forward(const tl::Tensor& images) override {
    const tl::Tensor low = dropout1(pool1(conv2(conv1(images))));
    const tl::Tensor high = dropout2(pool2(conv4(conv3(low))));
    return fc2(dropout3(fc1(high.flatten(1))));
  }
};

double default_lr(const std::string& optimizer) { return optimizer == "adadelta" ? 1.0 : optimizer == "sgd" ? 0.01 : 0.001; }

constexpr double kAdadeltaRho = 0.9, kAdadeltaEps = 1e-6, kRmspropRho = 0.9, kRmspropEps = 1e-8, kSgdMomentum = 0.9;

}  // namespace

Recipe make_recipe(const Settings& settings) {
  Recipe recipe = settings.model == "pytorch" ? Recipe{"pytorch", "adadelta", 14, 64, 0, 0.7, 0.1307, 0.3081, false}
                                              : Recipe{"ghouzam", "rmsprop", 30, 86, 0, 1, 0, 1, true};
  recipe.optimizer = settings.optimizer.value_or(recipe.optimizer);
  recipe.epochs = settings.epochs.value_or(recipe.epochs);
  recipe.batch = settings.batch.value_or(recipe.batch);
  recipe.gamma = settings.gamma.value_or(recipe.gamma);
  recipe.lr = settings.lr.value_or(default_lr(recipe.optimizer));
  return recipe;
}

std::unique_ptr<nn::Module> make_model(const Recipe& recipe) {
  if (recipe.model == "pytorch") return std::make_unique<PytorchNet>();
  return std::make_unique<GhouzamNet>();
}

std::unique_ptr<optim::Optimizer> make_optimizer(const Recipe& recipe, const nn::Module& model) {
  const auto parameters = model.named_parameters();
  if (recipe.optimizer == "adadelta")
    return std::make_unique<optim::Adadelta>(parameters, optim::AdadeltaOptions{.lr = recipe.lr, .rho = kAdadeltaRho, .eps = kAdadeltaEps});
  if (recipe.optimizer == "adam") return std::make_unique<optim::Adam>(parameters, optim::AdamOptions{.lr = recipe.lr});
  if (recipe.optimizer == "sgd")
    return std::make_unique<optim::SGD>(parameters, optim::SGDOptions{.lr = recipe.lr, .momentum = kSgdMomentum});
  return std::make_unique<optim::RMSprop>(
      parameters, optim::RMSpropOptions{.lr = recipe.lr, .alpha = kRmspropRho, .eps = kRmspropEps, .convention = optim::Convention::keras});
}

std::string describe_optimizer(const Recipe& recipe) {
  using tl::detail::concat;
  if (recipe.optimizer == "adadelta") return concat("Adadelta, lr ", recipe.lr, ", rho ", kAdadeltaRho, ", eps ", kAdadeltaEps);
  if (recipe.optimizer == "adam") return concat("Adam, lr ", recipe.lr);
  if (recipe.optimizer == "sgd") return concat("SGD, lr ", recipe.lr, ", momentum ", kSgdMomentum);
  return concat("RMSprop (Keras's), lr ", recipe.lr, ", rho ", kRmspropRho, ", eps ", kRmspropEps);
}

Schedule::Schedule(const Recipe& recipe, optim::Optimizer& optimizer) {
  if (recipe.model == "pytorch") steps_.emplace(optimizer, optim::StepLROptions{.step_size = 1, .gamma = recipe.gamma});
  else
    plateau_.emplace(optimizer, optim::ReduceLROnPlateauOptions{.monitor = "val_accuracy",
                                                                .mode = optim::Mode::max,
                                                                .factor = 0.5,
                                                                .patience = 3,
                                                                .threshold = 1e-4,
                                                                .min_lr = 1e-5,
                                                                .convention = optim::Convention::keras});
}

void Schedule::step(const optim::Metrics& metrics) {
  if (steps_) steps_->step();
  if (plateau_) plateau_->step(metrics);
}

tl::StateDict Schedule::state_dict() const { return steps_ ? steps_->state_dict() : plateau_->state_dict(); }

void Schedule::load_state_dict(const tl::StateDict& dict) {
  if (steps_) steps_->load_state_dict(dict);
  if (plateau_) plateau_->load_state_dict(dict);
}

std::string Schedule::describe(const Recipe& recipe) {
  return recipe.model == "pytorch" ? tl::detail::concat("times ", recipe.gamma, " after every epoch")
                                   : "halved after 3 epochs without better validation accuracy, not below 1e-05";
}

}  // namespace mnist_cnn
