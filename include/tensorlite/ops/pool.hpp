// L3: pooling over NHWC images (NCHW by option).
#pragma once

#include <tensorlite/ops/conv.hpp>

namespace tensorlite {

/// How the number of windows is rounded when the stride does not divide: down drops the rest, up adds a window that hangs over the edge
/// (but never one that starts beyond the input and its leading padding).
enum class Rounding : std::uint8_t { floor, ceil };

struct MaxPool2dOptions {
  std::optional<Size2d> stride = {};  ///< default: the window
  Padding padding = {};               ///< never wins
  Size2d dilation = 1;
  Rounding rounding = Rounding::floor;
  DataFormat format = DataFormat::NHWC;
};

struct AvgPool2dOptions {
  std::optional<Size2d> stride = {};  ///< default: the window
  Padding padding = {};
  Rounding rounding = Rounding::floor;
  bool count_include_pad = true;  ///< divide by the whole window including padding, else by the pixels in it
  DataFormat format = DataFormat::NHWC;
};

namespace detail {
struct PoolPlan {
  PoolParams params;
  Dims out;
};
TL_API PoolPlan plan_pool2d(const char* op, const Dims& x, Size2d window, std::optional<Size2d> stride, const Padding& padding,
                            Size2d dilation, Rounding rounding);
/// Values and, when wanted, int32 indices.
TL_API std::pair<Tensor, Tensor> max_pool2d_forward(const Tensor& x, const PoolPlan& plan, bool with_indices);
TL_API Tensor max_pool2d_gradient(const Tensor& g, const Tensor& indices, const Dims& input, const PoolParams& params);
TL_API Tensor avg_pool2d_forward(const Tensor& x, const PoolPlan& plan);
TL_API Tensor avg_pool2d_gradient(const Tensor& g, const Dims& input, const PoolParams& params);
/// g's elements at the places that `indices` name: the gradient of max_pool2d's gradient.
TL_API Tensor take_winners(const Tensor& g, const Tensor& indices);

inline Tensor max_pool2d_gradient_op(const Tensor& g, const Tensor& indices, const Dims& input, const PoolParams& params) {
  return record("MaxPoolGrad", max_pool2d_gradient(g, indices, input, params), {g}, {indices},
                [](const BackwardContext& c, const Tensor& gg) { return Gradients{take_winners(gg, c.saved(0))}; });
}

inline Tensor max_pool2d_nhwc(const Tensor& x, const PoolPlan& plan) {
  const TensorRef inputs[] = {x};
  const auto [out, indices] = max_pool2d_forward(x, plan, must_record("MaxPool", inputs));
  const Dims input = x.sizes();
  return record("MaxPool", out, {x}, {indices}, [input, params = plan.params](const BackwardContext& c, const Tensor& g) {
    return Gradients{max_pool2d_gradient_op(g, c.saved(0), input, params)};
  });
}

inline Tensor avg_pool2d_nhwc(const Tensor& x, const PoolPlan& plan);
inline Tensor avg_pool2d_gradient_op(const Tensor& g, const Dims& input, const PoolPlan& plan) {
  return record("AvgPoolGrad", avg_pool2d_gradient(g, input, plan.params), {g}, {},
                [plan](const BackwardContext&, const Tensor& gg) { return Gradients{avg_pool2d_nhwc(gg, plan)}; });
}
inline Tensor avg_pool2d_nhwc(const Tensor& x, const PoolPlan& plan) {
  const Dims input = x.sizes();
  return record("AvgPool", avg_pool2d_forward(x, plan), {x}, {},
                [input, plan](const BackwardContext&, const Tensor& g) { return Gradients{avg_pool2d_gradient_op(g, input, plan)}; });
}

inline void check_images(const char* op, const Tensor& x) {
  TL_CHECK(x.dim() == 4, ShapeError, op, "the input must have 4 axes, batch, height, width and channels, it has shape ", x.sizes());
}
}  // namespace detail

/// The largest value of each window; NaN wins; of equal ones the first takes the gradient.
/// Shapes: [N, H, W, C] to [N, OH, OW, C]. Throws ShapeError, ValueError (padding above half the window).
inline Tensor max_pool2d(const Tensor& x, Size2d window, const MaxPool2dOptions& options = {}) {
  detail::check_images("max_pool2d", x);
  return detail::with_format(x, options.format, [&](const Tensor& images) {
    return detail::max_pool2d_nhwc(images, detail::plan_pool2d("max_pool2d", images.sizes(), window, options.stride, options.padding,
                                                               options.dilation, options.rounding));
  });
}

/// The mean of each window.
inline Tensor avg_pool2d(const Tensor& x, Size2d window, const AvgPool2dOptions& options = {}) {
  detail::check_images("avg_pool2d", x);
  return detail::with_format(x, options.format, [&](const Tensor& images) {
    detail::PoolPlan plan = detail::plan_pool2d("avg_pool2d", images.sizes(), window, options.stride, options.padding, 1, options.rounding);
    plan.params.count_include_pad = options.count_include_pad;
    return detail::avg_pool2d_nhwc(images, plan);
  });
}

/// The mean of each of `output` by `output` nearly equal regions: {1, 1} is the global average.
inline Tensor adaptive_avg_pool2d(const Tensor& x, Size2d output, DataFormat format = DataFormat::NHWC) {
  detail::check_images("adaptive_avg_pool2d", x);
  TL_CHECK(output.h > 0 && output.w > 0, ValueError, "adaptive_avg_pool2d", "the output size must be positive, it is [", output.h, ", ",
           output.w, "]");
  return detail::with_format(x, format, [&](const Tensor& images) {
    TL_CHECK(images.sizes()[1] > 0 && images.sizes()[2] > 0, ShapeError, "adaptive_avg_pool2d", "the images of shape ", images.sizes(),
             " are empty");
    detail::PoolPlan plan;
    plan.params.adaptive = true;
    plan.out = {images.sizes()[0], output.h, output.w, images.sizes()[3]};
    return detail::avg_pool2d_nhwc(images, plan);
  });
}

}  // namespace tensorlite
