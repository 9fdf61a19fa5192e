// What a network's scores say: which text, and how wrong.
#pragma once

#include "recipe.hpp"

namespace captcha {

/// Texts as tensors on the CPU: classes [N, longest] and lengths [N]; what stands past a length means nothing.
struct Targets {
  tensorlite::Tensor classes, lengths;
};

class Interpreter {
 public:
  explicit Interpreter(const Recipe& recipe);

  /// Throws ValueError for a letter outside the alphabet and for a text that the network cannot say: longer than its frames, or, of cnn,
  /// not of four letters.
  Targets encode(const std::vector<std::string>& texts) const;

  /// The loss that the network is trained with, 0-d. Texts of four letters: classes [N, 4].
  tensorlite::Tensor loss(const tensorlite::Tensor& scores, const tensorlite::Tensor& classes) const;
  /// -log of each text's probability, [N].
  tensorlite::Tensor losses(const tensorlite::Tensor& scores, const Targets& targets) const;

  /// The most probable class everywhere, on the scores' device; nothing is waited for.
  tensorlite::Tensor choices(const tensorlite::Tensor& scores) const;
  /// The texts that these spell.
  std::vector<std::string> texts(const tensorlite::Tensor& choices) const;
  /// The texts of classes [N, 4].
  std::vector<std::string> truths(const tensorlite::Tensor& classes) const;

 private:
  Recipe recipe_;
  Codec codec_;
};

}  // namespace captcha
