// L3: convolutions (cross-correlation, as in every deep-learning library). Images NHWC, kernels OHWI.
#pragma once

#include <tensorlite/ops/linalg.hpp>

#include <limits>
#include <tuple>

namespace tensorlite {

enum class DataFormat : std::uint8_t { NHWC, NCHW };

/// One number for height and width, or two: `{.stride = 2}`, `{.stride = {2, 1}}`.
struct Size2d {
  std::int64_t h = 1, w = 1;
  constexpr Size2d() = default;
  constexpr Size2d(std::int64_t both) : h(both), w(both) {}
  constexpr Size2d(int both) : h(both), w(both) {}
  constexpr Size2d(std::int64_t height, std::int64_t width) : h(height), w(width) {}
  friend constexpr bool operator==(const Size2d&, const Size2d&) = default;
};

namespace detail {
/// Above it, positions in a padded image could overflow.
inline constexpr std::int64_t kMaxWindow = std::numeric_limits<std::int32_t>::max();
/// Throws ValueError unless both are in [1, 2^31).
inline void check_window(const char* op, const char* name, Size2d size) {
  TL_CHECK(size.h > 0 && size.w > 0 && size.h <= kMaxWindow && size.w <= kMaxWindow, ValueError, op, name,
           " must be positive and below 2^31, it is [", size.h, ", ", size.w, "]");
}
}  // namespace detail

/// Zeros around an image. same() is TensorFlow's: output = ceil(input / stride), the odd pixel at the bottom and right.
class Padding {
 public:
  constexpr Padding() = default;  ///< none: valid()
  constexpr Padding(std::int64_t all) : sides_{all, all, all, all} {}
  constexpr Padding(int all) : Padding(static_cast<std::int64_t>(all)) {}
  constexpr Padding(std::int64_t vertical, std::int64_t horizontal) : sides_{vertical, vertical, horizontal, horizontal} {}
  constexpr Padding(std::int64_t top, std::int64_t bottom, std::int64_t left, std::int64_t right) : sides_{top, bottom, left, right} {}
  static constexpr Padding same() {
    Padding p;
    p.same_ = true;
    return p;
  }
  static constexpr Padding valid() { return {}; }
  constexpr bool is_same() const { return same_; }
  /// top, bottom, left, right; of same() after resolve().
  constexpr const std::int64_t* sides() const { return sides_; }
  /// With same() worked out for this input, window, stride and dilation.
  constexpr Padding resolve(Size2d input, Size2d window, Size2d stride, Size2d dilation) const {
    if (!same_) return *this;
    const auto total = [](std::int64_t n, std::int64_t k, std::int64_t s, std::int64_t d) {
      const std::int64_t needed = ((n + s - 1) / s - 1) * s + (k - 1) * d + 1 - n;
      return needed > 0 ? needed : 0;
    };
    const std::int64_t v = total(input.h, window.h, stride.h, dilation.h), h = total(input.w, window.w, stride.w, dilation.w);
    return {v / 2, v - v / 2, h / 2, h - h / 2};
  }

 private:
  std::int64_t sides_[4] = {0, 0, 0, 0};
  bool same_ = false;
};

struct Conv2dOptions {
  Size2d stride = 1;
  Padding padding = {};
  Size2d dilation = 1;
  std::int64_t groups = 1;
  DataFormat format = DataFormat::NHWC;      ///< of the images; kernels are OHWI in both
  Activation activation = Activation::none;  ///< fused: none or relu
};

namespace detail {
/// Checks shapes and options; the kernel's parameters and the output's NHWC sizes.
struct ConvPlan {
  ConvParams params;
  Dims out;
};
TL_API ConvPlan plan_conv2d(const char* op, const Dims& x, const Dims& weight, const Tensor& bias, const Conv2dOptions& options);
TL_API Tensor conv2d_forward(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvPlan& plan,
                             Activation activation);
TL_API Tensor conv2d_input_gradient(const Tensor& g, const Tensor& weight, const Dims& input, ConvParams params);
/// Weight and (when `with_bias`) bias gradient.
TL_API std::pair<Tensor, Tensor> conv2d_weight_gradient(const Tensor& g, const Tensor& x, const Dims& weight, ConvParams params,
                                                        bool with_bias);

Tensor conv2d_nhwc(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvPlan& plan, Activation activation);

Tensor conv2d_weight_gradient_op(const Tensor& g, const Tensor& x, const Dims& weight, const ConvParams& params);

/// The input gradient as an op of its own: linear in g and weight, so its gradients are convolutions again.
inline Tensor conv2d_input_gradient_op(const Tensor& g, const Tensor& weight, const Dims& input, const ConvParams& params) {
  const Tensor out = conv2d_input_gradient(g, weight, input, params);
  return record("Conv2DBackpropInput", out, {g, weight}, {g, weight}, [params](const BackwardContext& c, const Tensor& gg) {
    Gradients grads(2);
    if (c.needs(0)) grads[0] = conv2d_nhwc(gg, c.saved(1), {}, {params, c.saved(0).sizes()}, Activation::none);
    if (c.needs(1)) grads[1] = conv2d_weight_gradient_op(c.saved(0), gg, c.saved(1).sizes(), params);
    return grads;
  });
}

/// The weight gradient as an op of its own: linear in g and x.
inline Tensor conv2d_weight_gradient_op(const Tensor& g, const Tensor& x, const Dims& weight, const ConvParams& params) {
  const Tensor out = conv2d_weight_gradient(g, x, weight, params, false).first;
  return record("Conv2DBackpropFilter", out, {g, x}, {g, x}, [params](const BackwardContext& c, const Tensor& gg) {
    Gradients grads(2);
    if (c.needs(0)) grads[0] = conv2d_nhwc(c.saved(1), gg, {}, {params, c.saved(0).sizes()}, Activation::none);
    if (c.needs(1)) grads[1] = conv2d_input_gradient_op(c.saved(0), gg, c.saved(1).sizes(), params);
    return grads;
  });
}

inline Gradients conv2d_gradient(const BackwardContext& c, const Tensor& gradient, const ConvParams& params, Activation activation) {
  const Tensor x = c.saved(0), w = c.saved(1);
  const Tensor g = before_activation(gradient, c.saved(2), activation, c.recording());
  Gradients grads(3);
  if (c.needs(0)) grads[0] = conv2d_input_gradient_op(g, w, x.sizes(), params);
  if (c.recording()) {
    if (c.needs(1)) grads[1] = conv2d_weight_gradient_op(g, x, w.sizes(), params);
    if (c.needs(2)) grads[2] = sum(g, {0, 1, 2});
  } else if (c.needs(1)) {
    std::tie(grads[1], grads[2]) = conv2d_weight_gradient(g, x, w.sizes(), params, c.needs(2));
  } else if (c.needs(2)) {
    grads[2] = sum(g, {0, 1, 2});
  }
  return grads;
}

inline Tensor conv2d_nhwc(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvPlan& plan, Activation activation) {
  const Tensor out = conv2d_forward("Conv2D", x, weight, bias, plan, activation);
  const Tensor kept = activation == Activation::none ? Tensor() : out;
  return record(
      "Conv2D", out, {x, weight, bias}, {x, weight, kept},
      [params = plan.params, activation](const BackwardContext& c, const Tensor& g) { return conv2d_gradient(c, g, params, activation); });
}

/// Runs an NHWC function on images of either format.
template <class F> Tensor with_format(const Tensor& x, DataFormat format, F&& f) {
  if (format == DataFormat::NHWC) return f(x);
  return permute(f(permute(x, {0, 2, 3, 1})), {0, 3, 1, 2});
}
}  // namespace detail

/// 2-D convolution, with bias and ReLU in one kernel.
/// Shapes: x [N, H, W, C] (NCHW: [N, C, H, W]), weight [O, KH, KW, C / groups], bias [O] or undefined; result [N, OH, OW, O],
/// OH = (H + top + bottom - dilation * (KH - 1) - 1) / stride + 1. Throws ShapeError, ValueError.
inline Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dOptions& options = {}) {
  TL_CHECK(options.activation != Activation::gelu, ValueError, "conv2d",
           "only relu can be fused into a convolution; call gelu() on the result");
  if (detail::lowers(x, weight, bias)) return conv2d(detail::lowered(x), detail::lowered(weight), detail::lowered(bias), options);
  TL_CHECK(x.dim() == 4, ShapeError, "conv2d", "the input must have 4 axes, batch, height, width and channels, it has shape ", x.sizes());
  return detail::with_format(x, options.format, [&](const Tensor& images) {
    const detail::ConvPlan plan = detail::plan_conv2d("conv2d", images.sizes(), weight.sizes(), bias, options);
    return detail::conv2d_nhwc(images, weight, bias, plan, options.activation);
  });
}
inline Tensor conv2d(const Tensor& x, const Tensor& weight, const Conv2dOptions& options = {}) {
  return conv2d(x, weight, Tensor(), options);
}

struct ConvTranspose2dOptions {
  Size2d stride = 1;
  Padding padding = {};       ///< cut from the result; explicit, not same()
  Size2d output_padding = 0;  ///< added to the result's bottom and right
  Size2d dilation = 1;
  std::int64_t groups = 1;
  DataFormat format = DataFormat::NHWC;
};

namespace detail {
TL_API ConvPlan plan_conv_transpose2d(const Dims& x, const Dims& weight, const Tensor& bias, const ConvTranspose2dOptions& options);
}

/// The adjoint of conv2d with the same weight: each input pixel adds a scaled kernel to the result.
/// Shapes: x [N, H, W, C], weight [C, KH, KW, O / groups] (the forward convolution's OHWI, which maps O to C), bias [O] or undefined;
/// result [N, OH, OW, O], OH = (H - 1) * stride - top - bottom + dilation * (KH - 1) + output_padding + 1. Throws ShapeError, ValueError.
inline Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const ConvTranspose2dOptions& options = {}) {
  if (detail::lowers(x, weight, bias)) return conv_transpose2d(detail::lowered(x), detail::lowered(weight), detail::lowered(bias), options);
  TL_CHECK(x.dim() == 4, ShapeError, "conv_transpose2d", "the input must have 4 axes, it has shape ", x.sizes());
  return detail::with_format(x, options.format, [&](const Tensor& images) {
    const detail::ConvPlan plan = detail::plan_conv_transpose2d(images.sizes(), weight.sizes(), bias, options);
    const Tensor out = detail::conv2d_input_gradient_op(images, weight, plan.out, plan.params);
    return bias.defined() ? out + bias : out;
  });
}

}  // namespace tensorlite
