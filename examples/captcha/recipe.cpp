#include "recipe.hpp"

#include <tensorlite/nn/recurrent.hpp>
#include <tensorlite/tensorlite.hpp>

namespace captcha {

namespace tl = tensorlite;
namespace nn = tensorlite::nn;
namespace optim = tensorlite::optim;
using tl::detail::concat;

namespace {

/// Keras's defaults where the published network was written in Keras, else PyTorch's.
struct Style {
  nn::Init convolution = nn::Init::pytorch, rest = nn::Init::pytorch;
  nn::BatchNormOptions norm = {};
};
Style style_of(const Recipe& recipe) {
  if (recipe.convention == optim::Convention::pytorch) return {};
  return {nn::Init::he, nn::Init::keras, {.momentum = 0.01, .eps = 1e-3}};
}

/// Convolution, batch normalisation and ReLU, once or several times, then a pool.
struct Block : nn::Module {
  std::vector<nn::Conv2d> convolutions;
  std::vector<nn::BatchNorm2d> norms;
  nn::MaxPool2d pool;

  Block(std::int64_t in, std::int64_t out, std::int64_t count, tl::Size2d window, const Style& style) : Module("Block"), pool(window) {
    for (std::int64_t i = 0; i < count; ++i) {
      convolutions.emplace_back(i == 0 ? in : out, out, 3, nn::Conv2dOptions{.padding = tl::Padding::same(), .init = style.convolution});
      norms.emplace_back(out, style.norm);
    }
    for (std::size_t i = 0; i < convolutions.size(); ++i) {
      register_module(concat("conv", i + 1), convolutions[i]);
      register_module(concat("norm", i + 1), norms[i]);
    }
    register_module("pool", pool);
  }
  tl::Tensor forward(const tl::Tensor& pictures) override {
    tl::Tensor x = pictures;
    for (std::size_t i = 0; i < convolutions.size(); ++i) x = tl::relu(norms[i](convolutions[i](x)));
    return pool(x);
  }
};

/// What all three networks begin with.
struct Stem : nn::Module {
  std::int64_t shrink;
  std::vector<Block> blocks;

  explicit Stem(const Recipe& recipe) : Module("Stem"), shrink(recipe.shrink) {
    std::int64_t channels = 3;
    for (std::size_t i = 0; i < recipe.filters.size(); ++i) {
      blocks.emplace_back(channels, recipe.filters[i], recipe.convolutions, recipe.pools[i], style_of(recipe));
      channels = recipe.filters[i];
    }
    for (std::size_t i = 0; i < blocks.size(); ++i) register_module(concat("block", i + 1), blocks[i]);
  }
  tl::Tensor forward(const tl::Tensor& pictures) override {
    tl::Tensor x = shrink > 1 ? tl::avg_pool2d(pictures, shrink) : pictures;
    for (Block& block : blocks) x = block(x);
    return x;
  }
};

struct Extent {
  std::int64_t height = 0, width = 0;
};
Extent extent_of_features(const Recipe& recipe) {
  Extent extent{recipe.image.height / recipe.shrink, recipe.image.width / recipe.shrink};
  for (const tl::Size2d& pool : recipe.pools) extent = {extent.height / pool.h, extent.width / pool.w};
  return extent;
}

/// One softmax for each letter. Source: captcha_break, cnn_2019.ipynb.
struct HeadsNet : nn::Module {
  Stem stem;
  std::vector<nn::Linear> heads;

  explicit HeadsNet(const Recipe& recipe) : Module("HeadsNet"), stem(recipe) {
    const auto [height, width] = extent_of_features(recipe);
    for (int i = 0; i < Generator::kTextLength; ++i)
      heads.emplace_back(height * width * recipe.filters.back(), recipe.codec().classes(),
                         nn::LinearOptions{.init = style_of(recipe).rest});
    register_module("stem", stem);
    for (std::size_t i = 0; i < heads.size(); ++i) register_module(concat("head", i + 1), heads[i]);
  }
  tl::Tensor forward(const tl::Tensor& pictures) override {
    const tl::Tensor features = stem(pictures).flatten(1);
    std::vector<tl::Tensor> scores;
    for (nn::Linear& head : heads) scores.push_back(head(features));
    return tl::stack(scores, 1);
  }
};

/// Columns of features, read in both directions by two recurrent layers. Source: captcha_break, ctc_2019.ipynb (GRU), ctc_pytorch.ipynb
/// (LSTM, with dropout before it).
struct RecurrentNet : nn::Module {
  Stem stem;
  nn::Dropout dropout;
  std::unique_ptr<nn::Recurrent> recurrent;
  nn::Linear output;

  explicit RecurrentNet(const Recipe& recipe)
      : Module("RecurrentNet"),
        stem(recipe),
        dropout(recipe.model == "ctc-lstm" ? 0.25 : 0),
        output(2 * recipe.hidden, recipe.codec().classes(), {.init = style_of(recipe).rest}) {
    const nn::RecurrentOptions options{.input_size = extent_of_features(recipe).height * recipe.filters.back(),
                                       .hidden_size = recipe.hidden,
                                       .num_layers = 2,
                                       .bidirectional = true,
                                       .init = style_of(recipe).rest};
    if (recipe.model == "ctc-lstm") recurrent = std::make_unique<nn::LSTM>(options);
    else recurrent = std::make_unique<nn::GRU>(options);
    register_module("stem", stem);
    register_module("dropout", dropout);
    register_module("recurrent", *recurrent);
    register_module("output", output);
  }
  tl::Tensor forward(const tl::Tensor& pictures) override {
    const tl::Tensor features = dropout(stem(pictures)).to(tl::kFloat32);  // [N, height, width, channels]
    const tl::Autocast full_precision(std::nullopt);                       // nearly all the work is in the stem
    const tl::Tensor columns = features.permute({2, 0, 1, 3}).flatten(2);  // [width, N, height * channels]
    return output((*recurrent)(columns));
  }
};

Recipe full_cnn() {
  Recipe recipe{"cnn", "full", {128, 64}, std::string(kLettersAndDigits), Blank::none};
  recipe.filters = {32, 64, 128, 256, 256};
  recipe.pools = {2, 2, 2, 2, 2};
  recipe.stages = {{1e-3, 100}, {1e-4, 100}};
  recipe.amsgrad = true;
  recipe.convention = optim::Convention::keras;
  recipe.patience = 3;
  return recipe;
}

Recipe full_gru() {
  Recipe recipe = full_cnn();
  recipe.model = "ctc-gru";
  recipe.blank = Blank::last;
  recipe.pools = {2, 2, 2, {2, 1}, {2, 1}};
  recipe.patience = 5;
  return recipe;
}

Recipe full_lstm() {
  Recipe recipe{"ctc-lstm", "full", {192, 64}, std::string(kLettersAndDigits), Blank::first};
  recipe.filters = {32, 64, 128, 256, 256};
  recipe.pools = {2, 2, 2, 2, {2, 1}};
  recipe.stages = {{1e-4, 30}, {1e-5, 10}};
  return recipe;
}

/// Digits only, half the resolution and a small network: learns within minutes on two cores.
void make_small(Recipe& recipe) {
  recipe.scale = "small";
  recipe.alphabet = kDigits;
  recipe.shrink = 2;
  recipe.convolutions = 1;
  recipe.filters = {16, 32, 64, 64};
  recipe.pools.erase(recipe.pools.begin());
  recipe.hidden = 64;
  recipe.batch = 32;
  recipe.steps = 500;
  recipe.validation_steps = 20;
  recipe.stages = {{1e-3, 8}, {1e-4, 2}};
}

}  // namespace

std::int64_t Recipe::frames() const { return extent_of_features(*this).width; }

Recipe make_recipe(const std::string& model, const std::string& scale) {
  TL_CHECK(model == "cnn" || model == "ctc-gru" || model == "ctc-lstm", ValueError, "make_recipe", "there is no model '", model, "'");
  TL_CHECK(scale == "full" || scale == "small", ValueError, "make_recipe", "there is no size '", scale, "'");
  Recipe recipe = model == "cnn" ? full_cnn() : model == "ctc-gru" ? full_gru() : full_lstm();
  if (scale == "small") make_small(recipe);
  return recipe;
}

std::int64_t published_size(const Recipe& recipe, const nn::Module& model) {
  std::int64_t size = model.parameter_count();
  if (recipe.convention == optim::Convention::keras)
    for (const tl::Tensor& buffer : model.buffers()) size += buffer.numel();
  return size;
}

std::unique_ptr<nn::Module> make_model(const Recipe& recipe) {
  if (recipe.recurrent()) return std::make_unique<RecurrentNet>(recipe);
  return std::make_unique<HeadsNet>(recipe);
}

std::unique_ptr<optim::Optimizer> make_optimizer(const Recipe& recipe, double lr, const nn::Module& model) {
  return std::make_unique<optim::Adam>(model.named_parameters(),
                                       optim::AdamOptions{.lr = lr, .amsgrad = recipe.amsgrad, .convention = recipe.convention});
}

std::string describe_optimizer(const Recipe& recipe) {
  std::string text = concat("Adam", recipe.convention == optim::Convention::keras ? " (Keras's)" : "", recipe.amsgrad ? ", amsgrad" : "");
  for (std::size_t i = 0; i < recipe.stages.size(); ++i) text += concat(i == 0 ? ", lr " : " then ", recipe.stages[i].lr);
  return text;
}

}  // namespace captcha
