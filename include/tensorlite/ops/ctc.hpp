// L3: connectionist temporal classification: the loss, and labels read from scores.
#pragma once

#include <tensorlite/ops/loss.hpp>

namespace tensorlite {

/// What the mean divides by besides the number of samples. target_length: each loss by the length of its target first (0 counts as 1), as
/// PyTorch; batch: nothing, as Keras.
enum class CtcMean : std::uint8_t { target_length, batch };

struct CtcLossOptions {
  std::int64_t blank = 0;  ///< class of the blank: PyTorch 0, TensorFlow and Keras the last one
  Reduction reduction = Reduction::mean;
  CtcMean mean_over = CtcMean::target_length;
  bool zero_infinity = false;  ///< a target that does not fit in its frames has loss 0, not infinity
};

/// -log of the probability that the frames spell the target, summed over all alignments. In log space and float64 inside, deterministic.
/// A target that does not fit (it needs its length in frames, and one more between equal neighbours) has loss infinity and gradient 0.
/// Shapes: log_probs [frames, N, classes], results of log_softmax; targets [N, labels] integers, what stands past a target's length is not
/// looked at; input_lengths, target_lengths [N] integers, undefined: all frames, all labels. Result: 0-d, or [N] without reduction.
/// Gradients: log_probs, minus the probability of being at a class in a frame; exactly 0 in frames past a sample's length. (PyTorch's adds
/// exp(log_probs), which the gradient of log_softmax takes out again.) They cannot be recorded (create_graph): that throws AutogradError.
/// Throws ShapeError, DTypeError, IndexError (a label outside the classes, or the blank), ValueError (a length out of range).
/// Source: Graves et al., ICML 2006.
TL_API Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths = {}, const Tensor& target_lengths = {},
                       const CtcLossOptions& options = {});
/// ctc_loss of log_softmax(logits): the gradient of both in one step, and 0 past a sample's length even where logits are NaN.
TL_API Tensor ctc_loss_with_logits(const Tensor& logits, const Tensor& targets, const Tensor& input_lengths = {},
                                   const Tensor& target_lengths = {}, const CtcLossOptions& options = {});

/// Labels of one sample.
using Labels = std::vector<std::int64_t>;

struct CtcDecodeOptions {
  std::int64_t blank = 0;
  Tensor lengths = {};  ///< frames of each sample, integers [N]; undefined: all
};
/// The most probable class of every frame, repeats merged, then blanks dropped: one list of labels per sample. Waits for the device.
/// Shapes: scores [frames, N, classes], logits or probabilities of any kind. Throws ShapeError, ValueError.
TL_API std::vector<Labels> ctc_greedy_decode(const Tensor& scores, const CtcDecodeOptions& options = {});
/// The same for the classes themselves, [frames, N] integers.
TL_API std::vector<Labels> ctc_collapse(const Tensor& path, const CtcDecodeOptions& options = {});

struct CtcBeamOptions {
  std::int64_t blank = 0;
  Tensor lengths = {};
  std::int64_t beam_width = 16;  ///< label sequences kept after every frame
  std::int64_t results = 1;      ///< of each sample, best first; fewer where fewer were found
};
struct CtcHypothesis {
  Labels labels;
  double log_probability = 0;  ///< of all alignments that the beam kept
};
/// The most probable label sequences, summed over their alignments, by prefix beam search on the host.
/// Shapes: log_probs [frames, N, classes]. Throws ShapeError, ValueError.
TL_API std::vector<std::vector<CtcHypothesis>> ctc_beam_search_decode(const Tensor& log_probs, const CtcBeamOptions& options = {});

}  // namespace tensorlite
