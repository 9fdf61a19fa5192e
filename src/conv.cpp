// Out-of-line part of ops/conv.hpp: checks, sizes and kernel calls of convolutions.
#include <tensorlite/ops/conv.hpp>

namespace tensorlite::detail {
namespace {

void check_options(const char* op, Size2d stride, Size2d dilation, std::int64_t groups, const Padding& padding) {
  check_window(op, "stride", stride);
  check_window(op, "dilation", dilation);
  TL_CHECK(groups > 0, ValueError, op, "groups must be positive, it is ", groups);
  for (int i = 0; i < 4; ++i)
    TL_CHECK(padding.sides()[i] >= 0 && padding.sides()[i] <= kMaxWindow, ValueError, op,
             "padding must not be negative and below 2^31, it is ", padding.sides()[i]);
}

ConvParams make_params(Size2d stride, Size2d dilation, const Padding& padding, std::int64_t groups) {
  ConvParams p;
  p.stride[0] = stride.h, p.stride[1] = stride.w;
  p.dilation[0] = dilation.h, p.dilation[1] = dilation.w;
  for (int i = 0; i < 4; ++i) p.padding[i] = padding.sides()[i];
  p.groups = groups;
  return p;
}

Tensor dense(const Tensor& x, DType dtype) {
  NoGradGuard guard;
  return x.detach().to(dtype).contiguous();
}
View optional_view(const Tensor& t) { return t.defined() ? t.raw() : View(); }

}  // namespace

ConvPlan plan_conv2d(const char* op, const Dims& x, const Dims& weight, const Tensor& bias, const Conv2dOptions& options) {
  check_options(op, options.stride, options.dilation, options.groups, options.padding);
  TL_CHECK(weight.size() == 4, ShapeError, op, "the weight must be [out, kernel height, kernel width, in / groups], it has shape ", weight);
  const std::int64_t groups = options.groups, channels = x[3], outs = weight[0];
  TL_CHECK(channels == weight[3] * groups, ShapeError, op, "input ", x, " has ", channels, " channels, weight ", weight, " with groups ",
           groups, " needs ", weight[3] * groups);
  TL_CHECK(outs % groups == 0, ShapeError, op, "groups ", groups, " do not divide the ", outs, " output channels of weight ", weight);
  TL_CHECK(weight[1] > 0 && weight[2] > 0, ShapeError, op, "the kernel is empty: weight ", weight);
  TL_CHECK(!bias.defined() || bias.sizes() == Dims({outs}), ShapeError, op, "the bias must have shape [", outs, "], it has ", bias.sizes());
  const Padding padding = options.padding.resolve({x[1], x[2]}, {weight[1], weight[2]}, options.stride, options.dilation);
  const ConvParams p = make_params(options.stride, options.dilation, padding, groups);
  Dims out{x[0], 0, 0, outs};
  for (int i = 0; i < 2; ++i) {
    const std::int64_t room = x[1 + i] + p.padding[2 * i] + p.padding[2 * i + 1] - p.dilation[i] * (weight[1 + i] - 1) - 1;
    TL_CHECK(room >= 0, ShapeError, op, "kernel ", weight, " with dilation ", p.dilation[i], " is larger than the padded input ", x);
    out[1 + i] = room / p.stride[i] + 1;
  }
  return {p, out};
}

ConvPlan plan_conv_transpose2d(const Dims& x, const Dims& weight, const Tensor& bias, const ConvTranspose2dOptions& options) {
  const char* op = "conv_transpose2d";
  check_options(op, options.stride, options.dilation, options.groups, options.padding);
  TL_CHECK(!options.padding.is_same(), ValueError, op, "padding same is ambiguous here; give the sides");
  TL_CHECK(weight.size() == 4 && weight[0] == x[3], ShapeError, op, "the weight must be [", x[3],
           ", kernel height, kernel width, out / groups], it has shape ", weight);
  TL_CHECK(weight[1] > 0 && weight[2] > 0, ShapeError, op, "the kernel is empty: weight ", weight);
  TL_CHECK(x[3] % options.groups == 0, ShapeError, op, "groups ", options.groups, " do not divide the ", x[3], " input channels");
  const std::int64_t outs = weight[3] * options.groups;
  TL_CHECK(!bias.defined() || bias.sizes() == Dims({outs}), ShapeError, op, "the bias must have shape [", outs, "], it has ", bias.sizes());
  const ConvParams p = make_params(options.stride, options.dilation, options.padding, options.groups);
  const std::int64_t extra[2] = {options.output_padding.h, options.output_padding.w};
  Dims out{x[0], 0, 0, outs};
  for (int i = 0; i < 2; ++i) {
    TL_CHECK(extra[i] >= 0 && (extra[i] < p.stride[i] || extra[i] < p.dilation[i]), ValueError, op, "output_padding ", extra[i],
             " must be smaller than stride ", p.stride[i], " or dilation ", p.dilation[i]);
    out[1 + i] =
        (x[1 + i] - 1) * p.stride[i] - p.padding[2 * i] - p.padding[2 * i + 1] + p.dilation[i] * (weight[1 + i] - 1) + extra[i] + 1;
    TL_CHECK(out[1 + i] >= 0, ShapeError, op, "input ", x, " with this padding leaves no result");
  }
  return {p, out};
}

Tensor conv2d_forward(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvPlan& plan,
                      Activation activation) {
  const Placed<2> in(op, x, weight);
  const DType dtype = promote(x.dtype(), weight.dtype());
  TL_CHECK(is_floating(dtype), DTypeError, "conv2d", "needs floating tensors, got ", x.dtype(), " and ", weight.dtype());
  const Tensor images = dense(in[0], dtype), kernel = dense(in[1], dtype);
  const Tensor offset = bias.defined() ? dense(bias.to(in.device), dtype) : bias;
  Tensor out = make_tensor(plan.out, dtype, in.device);
  TL_CALL(in, conv2d, out.raw(), images.raw(), kernel.raw(), optional_view(offset), plan.params, activation);
  return out;
}

Tensor conv2d_input_gradient(const Tensor& g, const Tensor& weight, const Dims& input, ConvParams params) {
  const Placed<2> in("Conv2DBackpropInput", g, weight);
  const DType dtype = promote(g.dtype(), weight.dtype());
  const Tensor grad = dense(in[0], dtype), kernel = dense(in[1], dtype);
  Tensor out = make_tensor(input, dtype, in.device);
  TL_CALL(in, conv2d_backward_input, out.raw(), grad.raw(), kernel.raw(), params);
  return out;
}

std::pair<Tensor, Tensor> conv2d_weight_gradient(const Tensor& g, const Tensor& x, const Dims& weight, ConvParams params, bool with_bias) {
  const Placed<2> in("Conv2DBackpropFilter", g, x);
  const DType dtype = promote(g.dtype(), x.dtype());
  const Tensor grad = dense(in[0], dtype), images = dense(in[1], dtype);
  Tensor out = make_tensor(weight, dtype, in.device);
  Tensor bias;
  if (with_bias) bias = make_tensor({weight[0]}, dtype, in.device);
  TL_CALL(in, conv2d_backward_weight, out.raw(), optional_view(bias), grad.raw(), images.raw(), params);
  return {out, bias};
}

}  // namespace tensorlite::detail
