// Out-of-line L4: layers with parameters.
#include <tensorlite/nn/layers.hpp>

namespace tensorlite::nn {

namespace {

Tensor new_weight(const Dims& sizes, std::optional<DType> dtype, std::optional<Device> device) {
  return empty(sizes, {.dtype = dtype, .device = device});
}

void check_channels(const char* op, std::int64_t in, std::int64_t out, Size2d kernel, std::int64_t groups) {
  TL_CHECK(in > 0 && out > 0, ValueError, op, "the numbers of channels must be positive, they are ", in, " and ", out);
  TL_CHECK(kernel.h > 0 && kernel.w > 0, ValueError, op, "the kernel must be positive, it is [", kernel.h, ", ", kernel.w, "]");
  TL_CHECK(groups > 0 && in % groups == 0 && out % groups == 0, ValueError, op, groups, " groups do not divide ", in, " input and ", out,
           " output channels");
}

/// Registers weight and (wanted or not) bias, and draws them.
template <class Options, class Register>
void add_weights(const Options& options, const Dims& weight_sizes, std::int64_t outputs, const Register& add) {
  const Tensor weight = new_weight(weight_sizes, options.dtype, options.device);
  const Tensor bias = options.bias ? new_weight({outputs}, options.dtype, options.device) : Tensor();
  init::layer_(options.init, weight, bias);
  add("weight", weight);
  add("bias", bias);
}

}  // namespace

Linear::Linear(std::int64_t in, std::int64_t out, const LinearOptions& options) : Module("Linear"), activation_(options.activation) {
  TL_CHECK(in > 0 && out > 0, ValueError, "Linear", "the numbers of inputs and outputs must be positive, they are ", in, " and ", out);
  add_weights(options, {out, in}, out, [this](const char* name, const Tensor& t) { register_parameter(name, t); });
}

Conv2d::Conv2d(std::int64_t in, std::int64_t out, Size2d kernel, const Conv2dOptions& options)
    : Module("Conv2d"),
      options_{.stride = options.stride,
               .padding = options.padding,
               .dilation = options.dilation,
               .groups = options.groups,
               .format = options.format,
               .activation = options.activation == Activation::relu ? Activation::relu : Activation::none},
      activation_(options.activation) {
  check_channels("Conv2d", in, out, kernel, options.groups);
  add_weights(options, {out, kernel.h, kernel.w, in / options.groups}, out,
              [this](const char* name, const Tensor& t) { register_parameter(name, t); });
}

Tensor Conv2d::forward(const Tensor& x) const {
  const Tensor y = conv2d(x, weight(), bias(), options_);
  return activation_ == Activation::gelu ? gelu(y) : y;
}

ConvTranspose2d::ConvTranspose2d(std::int64_t in, std::int64_t out, Size2d kernel, const ConvTranspose2dOptions& options)
    : Module("ConvTranspose2d"),
      options_{.stride = options.stride,
               .padding = options.padding,
               .output_padding = options.output_padding,
               .dilation = options.dilation,
               .groups = options.groups,
               .format = options.format} {
  check_channels("ConvTranspose2d", in, out, kernel, options.groups);
  add_weights(options, {in, kernel.h, kernel.w, out / options.groups}, out,
              [this](const char* name, const Tensor& t) { register_parameter(name, t); });
}

BatchNorm::BatchNorm(const char* kind, int lowest_rank, int highest_rank, std::int64_t channels, const BatchNormOptions& options)
    : Module(kind),
      lowest_rank_(lowest_rank),
      highest_rank_(highest_rank),
      options_{.momentum = options.momentum, .eps = options.eps, .format = options.format} {
  TL_CHECK(channels > 0, ValueError, kind, "the number of channels must be positive, it is ", channels);
  const TensorOptions place{.dtype = options.dtype, .device = options.device};
  register_parameter("weight", options.affine ? ones({channels}, place) : Tensor());
  register_parameter("bias", options.affine ? zeros({channels}, place) : Tensor());
  register_buffer("running_mean", options.track_running ? zeros({channels}, place) : Tensor());
  register_buffer("running_var", options.track_running ? ones({channels}, place) : Tensor());
}

Tensor BatchNorm::forward(const Tensor& x) const {
  TL_CHECK(x.dim() >= lowest_rank_ && x.dim() <= highest_rank_, ShapeError, kind(), "the input has shape ", x.sizes(), ", expected ",
           lowest_rank_, lowest_rank_ == highest_rank_ ? "" : " or 3", " axes");
  if (!is_training() && running_mean().defined()) return batch_norm_eval(x, weight(), bias(), running_mean(), running_var(), options_);
  return batch_norm_train(x, weight(), bias(), running_mean(), running_var(), options_);
}

LayerNorm::LayerNorm(const Dims& shape, const LayerNormOptions& options) : Module("LayerNorm"), shape_(shape), eps_(options.eps) {
  TL_CHECK(shape.size() > 0 && shape.product() > 0, ValueError, "LayerNorm", "the normalised shape ", shape, " is empty");
  const TensorOptions place{.dtype = options.dtype, .device = options.device};
  register_parameter("weight", options.affine ? ones(shape, place) : Tensor());
  register_parameter("bias", options.affine ? zeros(shape, place) : Tensor());
}

Embedding::Embedding(std::int64_t count, std::int64_t width, const EmbeddingOptions& options) : Module("Embedding") {
  TL_CHECK(count > 0 && width > 0, ValueError, "Embedding", "the table must be positive in both sizes, it is ", count, " by ", width);
  const Tensor weight = new_weight({count, width}, options.dtype, options.device);
  register_parameter("weight", init::normal_(weight));
}

}  // namespace tensorlite::nn
