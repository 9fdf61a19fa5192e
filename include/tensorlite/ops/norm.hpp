// L3: softmax, batch and layer normalisation.
#pragma once

#include <tensorlite/ops/conv.hpp>

namespace tensorlite {

namespace detail {
TL_API Tensor softmax_forward(const Tensor& x, int axis, bool log);
TL_API Tensor softmax_gradient(const Tensor& g, const Tensor& result, int axis, bool log);
struct NormResult {
  Tensor out, mean, inv_std;
};
TL_API NormResult batch_norm_forward(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& running_mean, Tensor& running_var,
                                     double momentum, double eps);
TL_API NormResult layer_norm_forward(const Tensor& x, const Tensor& weight, const Tensor& bias, const Dims& shape, double eps);
/// Gradients of x, weight and bias by the kernel of the op.
TL_API Gradients norm_gradient(const BackwardContext& c, const Tensor& g, bool batch, std::int64_t row);
}  // namespace detail

/// exp(x) / sum(exp(x)) along an axis, without overflow.
inline Tensor softmax(const Tensor& x, int axis) {
  if (detail::raises(x)) return softmax(detail::raised(x), axis);
  const int at = detail::wrap_axis("softmax", axis, x.dim());
  const Tensor out = detail::softmax_forward(x, at, false);
  return detail::record("Softmax", out, {x}, {out}, [at](const BackwardContext& c, const Tensor& g) {
    const Tensor y = c.saved(0);
    if (!c.recording()) return Gradients{detail::softmax_gradient(g, y, at, false)};
    return Gradients{y * (g - sum(g * y, {at}, {.keepdim = true}))};
  });
}

/// log(softmax(x)), finite for any finite x.
inline Tensor log_softmax(const Tensor& x, int axis) {
  if (detail::raises(x)) return log_softmax(detail::raised(x), axis);
  const int at = detail::wrap_axis("log_softmax", axis, x.dim());
  const Tensor out = detail::softmax_forward(x, at, true);
  return detail::record("LogSoftmax", out, {x}, {out}, [at](const BackwardContext& c, const Tensor& g) {
    const Tensor y = c.saved(0);
    if (!c.recording()) return Gradients{detail::softmax_gradient(g, y, at, true)};
    return Gradients{g - exp(y) * sum(g, {at}, {.keepdim = true})};
  });
}

struct BatchNormOptions {
  double momentum = 0.1;  ///< running = (1 - momentum) * running + momentum * batch; PyTorch's meaning (Keras's 0.99 is 0.01 here)
  double eps = 1e-5;      ///< Keras: 1e-3
  DataFormat format = DataFormat::NHWC;
};

/// Training: normalises each channel by the batch's mean and biased variance, and moves the running statistics (unbiased variance) in place
/// when they are defined. Shapes: x [N, C] or [N, ..., C] (NCHW: [N, C, H, W]); the others [C] or undefined.
/// Throws ShapeError, also when a channel has fewer than two values.
inline Tensor batch_norm_train(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& running_mean, Tensor& running_var,
                               const BatchNormOptions& options = {}) {
  return detail::with_format(x, x.dim() == 4 ? options.format : DataFormat::NHWC, [&](const Tensor& rows) {
    const detail::NormResult r = detail::batch_norm_forward(rows, weight, bias, running_mean, running_var, options.momentum, options.eps);
    return detail::record("FusedBatchNormV3", r.out, {rows, weight, bias}, {rows, weight, r.mean, r.inv_std},
                          [](const BackwardContext& c, const Tensor& g) { return detail::norm_gradient(c, g, true, 0); });
  });
}

/// Evaluation: normalises by the running statistics, which stay. Shapes as in training.
inline Tensor batch_norm_eval(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                              const Tensor& running_var, const BatchNormOptions& options = {}) {
  return detail::with_format(x, x.dim() == 4 ? options.format : DataFormat::NHWC, [&](const Tensor& rows) {
    TL_CHECK(rows.dim() >= 2 && running_mean.sizes() == Dims({rows.size(-1)}) && running_var.sizes() == running_mean.sizes(), ShapeError,
             "batch_norm", "running statistics of shape ", running_mean.sizes(), " do not fit input ", rows.sizes(), ", channels last");
    Tensor scale = rsqrt(running_var + options.eps);
    if (weight.defined()) scale = scale * weight;
    const Tensor shift = bias.defined() ? bias - running_mean * scale : -(running_mean * scale);
    return rows * scale + shift;
  });
}

struct LayerNormOptions {
  double eps = 1e-5;
};
/// Normalises over the last axes, those of `shape`, row by row. weight, bias: of that shape or undefined. Throws ShapeError.
inline Tensor layer_norm(const Tensor& x, const Dims& shape, const Tensor& weight = {}, const Tensor& bias = {},
                         const LayerNormOptions& options = {}) {
  if (detail::raises(x)) return layer_norm(detail::raised(x), shape, weight, bias, options);
  TL_CHECK(shape.size() > 0 && shape.size() <= x.dim(), ShapeError, "layer_norm", "normalised shape ", shape, " for input ", x.sizes());
  for (int i = 0; i < shape.size(); ++i)
    TL_CHECK(x.size(i - shape.size()) == shape[i], ShapeError, "layer_norm", "input ", x.sizes(), " does not end in ", shape);
  const std::int64_t row = shape.product();
  TL_CHECK(row > 0, ShapeError, "layer_norm", "normalised shape ", shape, " is empty");
  const detail::NormResult r = detail::layer_norm_forward(x, weight, bias, shape, options.eps);
  return detail::record("LayerNorm", r.out, {x, weight, bias}, {x, weight, r.mean, r.inv_std},
                        [row](const BackwardContext& c, const Tensor& g) { return detail::norm_gradient(c, g, false, row); });
}

}  // namespace tensorlite
