#include "interpreter.hpp"

#include <tensorlite/tensorlite.hpp>

#include <algorithm>

namespace captcha {

namespace tl = tensorlite;

namespace {

constexpr std::int64_t kLetters = Generator::kTextLength;

/// Frames that CTC needs for a text: its letters, and a blank between equal neighbours.
std::int64_t frames_needed(std::string_view text) {
  std::int64_t frames = static_cast<std::int64_t>(text.size());
  for (std::size_t i = 1; i < text.size(); ++i) frames += text[i] == text[i - 1];
  return frames;
}

void check_length(const Recipe& recipe, std::string_view text) {
  if (!recipe.recurrent()) {
    TL_CHECK(text.size() == kLetters, ValueError, "encode", "the label '", text, "' has ", text.size(), " letters, model cnn reads ",
             kLetters);
    return;
  }
  TL_CHECK(frames_needed(text) <= recipe.frames(), ValueError, "encode", "the label '", text, "' needs ", frames_needed(text),
           " frames, model ", recipe.model, " has ", recipe.frames(), " (a letter takes one, a repeated letter two)");
}

}  // namespace

Interpreter::Interpreter(const Recipe& recipe) : recipe_(recipe), codec_(recipe.codec()) {}

Targets Interpreter::encode(const std::vector<std::string>& texts) const {
  std::size_t longest = 1;
  for (const std::string& text : texts) longest = std::max(longest, text.size());
  std::vector<std::int64_t> classes, lengths;
  for (const std::string& text : texts) {
    auto own = codec_.encode(text);
    check_length(recipe_, text);
    lengths.push_back(static_cast<std::int64_t>(own.size()));
    own.resize(longest, codec_.blank() == 0 ? 1 : 0);
    classes.insert(classes.end(), own.begin(), own.end());
  }
  const auto count = static_cast<std::int64_t>(texts.size());
  return {tl::from_vector(classes, {count, static_cast<std::int64_t>(longest)}, {.device = tl::cpu_device()}),
          tl::from_vector(lengths, {count}, {.device = tl::cpu_device()})};
}

tl::Tensor Interpreter::loss(const tl::Tensor& scores, const tl::Tensor& classes) const {
  if (!recipe_.recurrent()) return tl::cross_entropy(scores, classes) * static_cast<double>(kLetters);  // the sum over the heads
  // Keras's mean is over the pictures, PyTorch's over their letters too.
  const auto mean = recipe_.convention == tl::optim::Convention::keras ? tl::CtcMean::batch : tl::CtcMean::target_length;
  return tl::ctc_loss_with_logits(scores, classes, {}, {}, {.blank = codec_.blank(), .mean_over = mean});
}

tl::Tensor Interpreter::losses(const tl::Tensor& scores, const Targets& targets) const {
  const tl::Tensor classes = targets.classes.to(scores.device());
  if (!recipe_.recurrent()) return tl::sum(tl::cross_entropy(scores, classes, {.reduction = tl::Reduction::none}), {1});
  return tl::ctc_loss_with_logits(scores, classes, {}, targets.lengths.to(scores.device()),
                                  {.blank = codec_.blank(), .reduction = tl::Reduction::none});
}

tl::Tensor Interpreter::choices(const tl::Tensor& scores) const { return tl::argmax(scores, -1); }

std::vector<std::string> Interpreter::texts(const tl::Tensor& choices) const {
  if (!recipe_.recurrent()) return truths(choices);
  std::vector<std::string> texts;
  for (const auto& labels : tl::ctc_collapse(choices, {.blank = codec_.blank()})) texts.push_back(codec_.decode(labels));
  return texts;
}

std::vector<std::string> Interpreter::truths(const tl::Tensor& classes) const {
  const auto values = classes.to_vector<std::int64_t>();
  const auto length = static_cast<std::size_t>(classes.size(1));
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < values.size(); i += length) texts.push_back(codec_.decode(std::span(values).subspan(i, length)));
  return texts;
}

}  // namespace captcha
