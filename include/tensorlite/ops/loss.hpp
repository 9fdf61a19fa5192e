// L3: losses. Reduction mean divides by the number of elements (weighted rows for class losses), as in PyTorch.
#pragma once

#include <tensorlite/ops/index.hpp>
#include <tensorlite/ops/norm.hpp>

namespace tensorlite {

enum class Reduction : std::uint8_t { mean, sum, none };

struct CrossEntropyOptions {
  std::int64_t ignore_index = -100;  ///< rows of this class index count for nothing
  double label_smoothing = 0;        ///< this much of the target is spread over all classes
  Reduction reduction = Reduction::mean;
};
struct LossOptions {
  Reduction reduction = Reduction::mean;
};

namespace detail {
/// Losses per row and the rows' log-sum-exp.
TL_API std::pair<Tensor, Tensor> cross_entropy_forward(const Tensor& logits, const Tensor& labels, CrossEntropyParams params);
TL_API Tensor cross_entropy_gradient(const Tensor& g, const Tensor& logits, const Tensor& log_sum_exp, const Tensor& labels,
                                     CrossEntropyParams params);
/// d/d logits in public ops, for double backward.
TL_API Tensor cross_entropy_gradient_recorded(const Tensor& g, const Tensor& logits, const Tensor& labels, CrossEntropyParams params);
inline Tensor reduce_loss(const Tensor& losses, Reduction reduction) {
  return reduction == Reduction::none ? losses : reduction == Reduction::sum ? sum(losses) : mean(losses);
}
/// The mean and 1 / the number of rows in it.
TL_API std::pair<Tensor, Tensor> mean_of_rows(const Tensor& losses, const Tensor& labels, std::int64_t ignore_index);
/// Mean over the rows that are not ignored; 0 / 0 is NaN, as in PyTorch.
inline Tensor reduce_rows(const Tensor& losses, const Tensor& labels, std::int64_t ignore_index, Reduction reduction) {
  if (reduction != Reduction::mean) return reduce_loss(losses, reduction);
  const auto [mean, share] = mean_of_rows(losses, labels, ignore_index);
  return record("Mean", mean, {losses}, {share},
                [sizes = losses.sizes()](const BackwardContext& c, const Tensor& g) { return Gradients{expand(g * c.saved(0), sizes)}; });
}
}  // namespace detail

/// -log softmax(logits)[label], fused and finite for any finite logits.
/// Shapes: logits [..., classes]; labels integers of shape [...], or floating probabilities of logits' shape.
/// Throws IndexError naming a label outside [0, classes) that is not ignore_index (a GPU: see ops/index.hpp), ShapeError, ValueError.
inline Tensor cross_entropy(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options = {}) {
  TL_CHECK(options.label_smoothing >= 0 && options.label_smoothing <= 1, ValueError, "cross_entropy",
           "label_smoothing must be in [0, 1], it is ", options.label_smoothing);
  TL_CHECK(logits.dim() > 0, ShapeError, "cross_entropy", "logits must have a class axis, they are 0-d");
  const std::int64_t classes = logits.size(-1);
  if (is_floating(labels.dtype())) {
    TL_CHECK(labels.sizes() == logits.sizes(), ShapeError, "cross_entropy", "probabilities ", labels.sizes(), " for logits ",
             logits.sizes());
    const double s = options.label_smoothing;
    const Tensor target = s == 0 ? labels : labels * (1 - s) + s / static_cast<double>(classes);
    return detail::reduce_loss(-sum(target * log_softmax(logits, -1), {-1}), options.reduction);
  }
  Dims rows = logits.sizes();
  rows.pop_back();
  TL_CHECK(labels.sizes() == rows, ShapeError, "cross_entropy", "labels ", labels.sizes(), " for logits ", logits.sizes(), "; expected ",
           rows);
  const CrossEntropyParams params{options.ignore_index, options.label_smoothing};
  const Tensor flat = reshape(logits, {rows.product(), classes}), classes_of = detail::as_index("cross_entropy", labels).reshape({-1});
  const auto [losses, log_sum_exp] = detail::cross_entropy_forward(flat, classes_of, params);
  const Tensor per_row = detail::record("SparseSoftmaxCrossEntropyWithLogits", losses, {flat}, {flat, log_sum_exp, classes_of},
                                        [params](const BackwardContext& c, const Tensor& g) {
                                          if (c.recording())
                                            return Gradients{detail::cross_entropy_gradient_recorded(g, c.saved(0), c.saved(2), params)};
                                          return Gradients{detail::cross_entropy_gradient(g, c.saved(0), c.saved(1), c.saved(2), params)};
                                        });
  if (options.reduction == Reduction::none) return reshape(per_row, rows);
  return detail::reduce_rows(per_row, classes_of, options.ignore_index, options.reduction);
}

struct NllLossOptions {
  std::int64_t ignore_index = -100;
  Reduction reduction = Reduction::mean;
};
/// -log_probabilities[label], for log_softmax's results. Shapes and errors as cross_entropy's with labels.
inline Tensor nll_loss(const Tensor& log_probabilities, const Tensor& labels, const NllLossOptions& options = {}) {
  if (detail::raises(log_probabilities)) return nll_loss(detail::raised(log_probabilities), labels, options);
  TL_CHECK(log_probabilities.dim() > 0, ShapeError, "nll_loss", "log probabilities must have a class axis, they are 0-d");
  Dims rows = log_probabilities.sizes();
  rows.pop_back();
  TL_CHECK(labels.sizes() == rows, ShapeError, "nll_loss", "labels ", labels.sizes(), " for log probabilities ", log_probabilities.sizes());
  const Tensor index = detail::as_index("nll_loss", labels);
  const Tensor ignored = index == options.ignore_index;
  const Tensor places = detail::refuse_negative("nll_loss", masked_fill(index, ignored, 0), log_probabilities.size(-1));
  const Tensor picked = squeeze(gather(log_probabilities, -1, unsqueeze(places, -1)), -1);
  return detail::reduce_rows(masked_fill(-picked, ignored, 0), index, options.ignore_index, options.reduction);
}

/// (input - target)^2. Shapes broadcast.
inline Tensor mse_loss(const Tensor& input, const Tensor& target, const LossOptions& options = {}) {
  return detail::reduce_loss(squared_difference(detail::raised(input), detail::raised(target)), options.reduction);
}
/// |input - target|.
inline Tensor l1_loss(const Tensor& input, const Tensor& target, const LossOptions& options = {}) {
  return detail::reduce_loss(abs(detail::raised(input) - detail::raised(target)), options.reduction);
}
struct SmoothL1Options {
  double beta = 1;  ///< below it the loss is quadratic
  Reduction reduction = Reduction::mean;
};
/// d^2 / (2 beta) for |d| < beta, else |d| - beta / 2.
inline Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, const SmoothL1Options& options = {}) {
  TL_CHECK(options.beta >= 0, ValueError, "smooth_l1_loss", "beta must not be negative, it is ", options.beta);
  if (options.beta == 0) return l1_loss(input, target, {options.reduction});
  const Tensor d = detail::raised(input) - detail::raised(target), size = abs(d);
  return detail::reduce_loss(where(size < options.beta, d * d * (0.5 / options.beta), size - 0.5 * options.beta), options.reduction);
}
/// Binary cross-entropy of sigmoid(logits) with targets in [0, 1], without overflow.
inline Tensor bce_with_logits(const Tensor& logits, const Tensor& target, const LossOptions& options = {}) {
  const Tensor x = detail::raised(logits), y = detail::raised(target);
  return detail::reduce_loss(x * (1 - y) - log_sigmoid(x), options.reduction);
}

}  // namespace tensorlite
