// Out-of-line part of ops/pool.hpp and ops/norm.hpp: sizes, statistics and kernel calls.
#include <tensorlite/ops/index.hpp>
#include <tensorlite/ops/norm.hpp>
#include <tensorlite/ops/pool.hpp>

namespace tensorlite::detail {
namespace {
Tensor dense(const Tensor& x) {
  NoGradGuard guard;
  return x.detach().contiguous();
}
Tensor dense_as(const Tensor& x, DType dtype, Device device) {
  if (!x.defined()) return x;
  NoGradGuard guard;
  return x.detach().to(device).to(dtype).contiguous();
}
View optional_view(const Tensor& t) { return t.defined() ? t.raw() : View(); }

void check_floating(const char* op, const Tensor& x) {
  TL_CHECK(is_floating(x.dtype()), DTypeError, op, "needs a floating tensor, got ", x.dtype());
}
}  // namespace

// ----------------------------------------------------------------------------------------------------------------------- pool

PoolPlan plan_pool2d(const char* op, const Dims& x, Size2d window, std::optional<Size2d> stride, const Padding& padding, Size2d dilation,
                     Rounding rounding) {
  const Size2d step = stride.value_or(window);
  check_window(op, "the window", window);
  check_window(op, "stride", step);
  check_window(op, "dilation", dilation);
  const Padding resolved = padding.resolve({x[1], x[2]}, window, step, dilation);
  PoolPlan plan;
  PoolParams& p = plan.params;
  p.kernel[0] = window.h, p.kernel[1] = window.w;
  p.stride[0] = step.h, p.stride[1] = step.w;
  p.dilation[0] = dilation.h, p.dilation[1] = dilation.w;
  plan.out = {x[0], 0, 0, x[3]};
  for (int i = 0; i < 2; ++i) {
    const std::int64_t before = resolved.sides()[2 * i], after = resolved.sides()[2 * i + 1], span = p.dilation[i] * (p.kernel[i] - 1) + 1;
    TL_CHECK(before >= 0 && after >= 0, ValueError, op, "padding must not be negative, it is ", before, " and ", after);
    TL_CHECK(before <= span / 2 && after <= span / 2, ValueError, op, "padding ", std::max(before, after), " is above half the window of ",
             span, ": a window could lie in padding alone");
    p.padding[2 * i] = before, p.padding[2 * i + 1] = after;
    const std::int64_t room = x[1 + i] + before + after - span;
    TL_CHECK(x[1 + i] > 0 && room >= 0, ShapeError, op, "the window of ", span, " is larger than the padded input ", x);
    std::int64_t count = room / p.stride[i] + 1;
    if (rounding == Rounding::ceil && room % p.stride[i] != 0 && count * p.stride[i] < x[1 + i] + before) ++count;
    plan.out[1 + i] = count;
  }
  return plan;
}

std::pair<Tensor, Tensor> max_pool2d_forward(const Tensor& x, const PoolPlan& plan, bool with_indices) {
  const Placed<1> in("MaxPool", x);
  TL_CHECK(x.sizes()[1] * x.sizes()[2] <= std::numeric_limits<std::int32_t>::max(), ShapeError, "max_pool2d", "images of shape ", x.sizes(),
           " have more than 2^31 - 1 pixels");
  const Tensor images = dense(in[0]);
  Tensor out = make_tensor(plan.out, x.dtype(), in.device), indices;
  if (with_indices) indices = make_tensor(plan.out, kInt32, in.device);
  TL_CALL(in, max_pool2d, out.raw(), optional_view(indices), images.raw(), plan.params);
  return {out, indices};
}

Tensor max_pool2d_gradient(const Tensor& g, const Tensor& indices, const Dims& input, const PoolParams& params) {
  const Placed<2> in("MaxPoolGrad", g, indices);
  Tensor out = make_tensor(input, g.dtype(), in.device);
  TL_CALL(in, max_pool2d_backward, out.raw(), dense(in[0]).raw(), in.view(1), params);
  return out;
}

Tensor take_winners(const Tensor& g, const Tensor& indices) {
  const Dims s = g.sizes(), o = indices.sizes();
  const Tensor flat = reshape(g, {s[0], s[1] * s[2], s[3]}), places = reshape(indices, {o[0], o[1] * o[2], o[3]}).to(kInt64);
  return reshape(gather(flat, 1, places), o);
}

Tensor avg_pool2d_forward(const Tensor& x, const PoolPlan& plan) {
  const Placed<1> in("AvgPool", x);
  check_floating("avg_pool2d", x);
  Tensor out = make_tensor(plan.out, x.dtype(), in.device);
  TL_CALL(in, avg_pool2d, out.raw(), dense(in[0]).raw(), plan.params);
  return out;
}

Tensor avg_pool2d_gradient(const Tensor& g, const Dims& input, const PoolParams& params) {
  const Placed<1> in("AvgPoolGrad", g);
  Tensor out = make_tensor(input, g.dtype(), in.device);
  TL_CALL(in, avg_pool2d_backward, out.raw(), dense(in[0]).raw(), params);
  return out;
}

// -------------------------------------------------------------------------------------------------------------------- softmax

namespace {
/// [outer, n, inner] around an axis.
View around_axis(const Tensor& dense, int axis) {
  Dims sizes{1, dense.dim() == 0 ? 1 : dense.sizes()[axis], 1};
  for (int i = 0; i < dense.dim(); ++i)
    if (i != axis) sizes[i < axis ? 0 : 2] *= dense.sizes()[i];
  return View(dense.raw().data, dense.dtype(), dense.device(), sizes, contiguous_strides(sizes));
}
}  // namespace

Tensor softmax_forward(const Tensor& x, int axis, bool log) {
  const Placed<1> in(log ? "LogSoftmax" : "Softmax", x);
  check_floating(log ? "log_softmax" : "softmax", x);
  const Tensor from = dense(in[0]);
  Tensor out = make_tensor(x.sizes(), x.dtype(), in.device);
  TL_CALL(in, softmax, around_axis(out, axis), around_axis(from, axis), log);
  return out;
}

Tensor softmax_gradient(const Tensor& g, const Tensor& result, int axis, bool log) {
  const Placed<2> in(log ? "LogSoftmaxGrad" : "SoftmaxGrad", g, result);
  const Tensor grad = dense(in[0]), from = dense(in[1]);
  Tensor out = make_tensor(g.sizes(), g.dtype(), in.device);
  TL_CALL(in, softmax_backward, around_axis(out, axis), around_axis(grad, axis), around_axis(from, axis), log);
  return out;
}

// -------------------------------------------------------------------------------------------------------------- normalisation

namespace {
/// Statistics are float32, float64 for float64.
DType statistics_dtype(DType dtype) { return dtype == kFloat64 ? kFloat64 : kFloat32; }

View as_rows(const Tensor& dense, std::int64_t row) {
  const Dims sizes{row == 0 ? 0 : dense.numel() / row, row};
  return View(dense.raw().data, dense.dtype(), dense.device(), sizes, contiguous_strides(sizes));
}
View as_row(const Tensor& t) { return t.defined() ? View(t.raw().data, t.dtype(), t.device(), {t.numel()}, {1}) : View(); }

/// A running statistic where the kernel can update it; the caller's tensor is updated from it when it is a copy.
Tensor working_statistic(const char* op, const Tensor& statistic, std::int64_t channels, DType dtype, Device device) {
  if (!statistic.defined()) return statistic;
  TL_CHECK(statistic.sizes() == Dims({channels}), ShapeError, op, "running statistics of shape ", statistic.sizes(), " for ", channels,
           " channels");
  TL_CHECK(is_floating(statistic.dtype()), DTypeError, op, "running statistics must be floating, got ", statistic.dtype());
  return dense_as(statistic, dtype, device);
}
void store_statistic(Tensor& statistic, const Tensor& working) {
  if (!statistic.defined()) return;
  NoGradGuard guard;
  if (working.raw().data == statistic.raw().data) bump_version(statistic);
  else statistic.copy_(working);
}

void check_parameter(const char* op, const char* name, const Tensor& parameter, const Dims& sizes) {
  TL_CHECK(!parameter.defined() || parameter.sizes() == sizes, ShapeError, op, "the ", name, " has shape ", parameter.sizes(),
           ", expected ", sizes);
}
}  // namespace

NormResult batch_norm_forward(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& running_mean, Tensor& running_var,
                              double momentum, double eps) {
  const char* op = "batch_norm";
  check_floating(op, x);
  TL_CHECK(x.dim() >= 2, ShapeError, op, "the input must be [N, ..., C], it has shape ", x.sizes());
  const std::int64_t channels = x.size(-1), count = channels == 0 ? 0 : x.numel() / channels;
  TL_CHECK(count >= 2 || x.numel() == 0, ShapeError, op, "input ", x.sizes(), " has ", count,
           " value per channel: its variance is not defined in training; use a larger batch or eval()");
  check_parameter(op, "weight", weight, {channels});
  check_parameter(op, "bias", bias, {channels});
  const Placed<1> in("FusedBatchNormV3", x);
  const DType dtype = statistics_dtype(x.dtype());
  const Tensor from = dense(in[0]), w = dense_as(weight, dtype, in.device), b = dense_as(bias, dtype, in.device);
  const Tensor mean_now = working_statistic(op, running_mean, channels, dtype, in.device);
  const Tensor var_now = working_statistic(op, running_var, channels, dtype, in.device);
  NormResult r{make_tensor(x.sizes(), x.dtype(), in.device), make_tensor({channels}, dtype, in.device),
               make_tensor({channels}, dtype, in.device)};
  TL_CALL(in, batch_norm, as_rows(r.out, channels), r.mean.raw(), r.inv_std.raw(), optional_view(mean_now), optional_view(var_now),
          as_rows(from, channels), optional_view(w), optional_view(b), momentum, eps);
  store_statistic(running_mean, mean_now);
  store_statistic(running_var, var_now);
  return r;
}

NormResult layer_norm_forward(const Tensor& x, const Tensor& weight, const Tensor& bias, const Dims& shape, double eps) {
  check_floating("layer_norm", x);
  check_parameter("layer_norm", "weight", weight, shape);
  check_parameter("layer_norm", "bias", bias, shape);
  const Placed<1> in("LayerNorm", x);
  const DType dtype = statistics_dtype(x.dtype());
  const Tensor from = dense(in[0]), w = dense_as(weight, dtype, in.device), b = dense_as(bias, dtype, in.device);
  const std::int64_t row = shape.product(), rows = x.numel() / row;
  NormResult r{make_tensor(x.sizes(), x.dtype(), in.device), make_tensor({rows}, dtype, in.device), make_tensor({rows}, dtype, in.device)};
  TL_CALL(in, layer_norm, as_rows(r.out, row), r.mean.raw(), r.inv_std.raw(), as_rows(from, row), as_row(w), as_row(b), eps);
  return r;
}

Gradients norm_gradient(const BackwardContext& c, const Tensor& g, bool batch, std::int64_t row) {
  const char* op = batch ? "FusedBatchNormGradV3" : "LayerNormGrad";
  TL_CHECK(!c.recording(), AutogradError, op, "its gradient cannot be recorded (create_graph): it has no gradient of its own");
  const Tensor x = c.saved(0), weight = c.saved(1), mean = c.saved(2), inv_std = c.saved(3);
  const std::int64_t width = batch ? x.size(-1) : row;
  const Placed<1> in(op, x);
  const DType dtype = mean.dtype();
  const Tensor from = dense(in[0]), grad = dense_as(g, x.dtype(), in.device), w = dense_as(weight, dtype, in.device);
  Tensor grad_in = make_tensor(x.sizes(), x.dtype(), in.device);
  Tensor grad_weight = make_tensor({width}, dtype, in.device), grad_bias = make_tensor({width}, dtype, in.device);
  if (batch)
    TL_CALL(in, batch_norm_backward, as_rows(grad_in, width), grad_weight.raw(), grad_bias.raw(), as_rows(grad, width),
            as_rows(from, width), as_row(w), mean.raw(), inv_std.raw());
  else
    TL_CALL(in, layer_norm_backward, as_rows(grad_in, width), grad_weight.raw(), grad_bias.raw(), as_rows(grad, width),
            as_rows(from, width), as_row(w), mean.raw(), inv_std.raw());
  const auto shaped = [&](const Tensor& t, int input) {
    return c.needs(input) ? reshape(t, c.node().edges[static_cast<std::size_t>(input)].sizes) : Tensor();
  };
  return {grad_in, shaped(grad_weight, 1), shaped(grad_bias, 2)};
}

}  // namespace tensorlite::detail
