// L4: layers with parameters. Images are NHWC, kernels OHWI.
#pragma once

#include <tensorlite/nn/init.hpp>
#include <tensorlite/nn/module.hpp>

namespace tensorlite::nn {

struct LinearOptions {
  bool bias = true;
  Activation activation = Activation::none;  ///< fused into the product
  Init init = Init::pytorch;
  std::optional<DType> dtype = {};    ///< default float32
  std::optional<Device> device = {};  ///< default: that of creation functions
};

/// activation(x weight^T + bias). Shapes: x [..., in], weight [out, in], bias [out], result [..., out].
class TL_API Linear : public Module {
 public:
  Linear(std::int64_t in, std::int64_t out, const LinearOptions& options = {});
  Tensor& weight() const { return own_parameter(0); }
  Tensor& bias() const { return own_parameter(1); }  ///< undefined without one
  Tensor forward(const Tensor& x) const override { return linear(x, weight(), bias(), activation_); }

 private:
  Activation activation_;
};

struct Conv2dOptions {
  Size2d stride = 1;
  Padding padding = {};
  Size2d dilation = 1;
  std::int64_t groups = 1;
  DataFormat format = DataFormat::NHWC;
  bool bias = true;
  Activation activation = Activation::none;  ///< relu is fused into the convolution
  Init init = Init::pytorch;
  std::optional<DType> dtype = {};
  std::optional<Device> device = {};
};

/// conv2d with weight [out, KH, KW, in / groups] and bias [out]. Throws ValueError unless the groups divide both channel counts.
class TL_API Conv2d : public Module {
 public:
  Conv2d(std::int64_t in, std::int64_t out, Size2d kernel, const Conv2dOptions& options = {});
  Tensor& weight() const { return own_parameter(0); }
  Tensor& bias() const { return own_parameter(1); }
  Tensor forward(const Tensor& x) const override;

 private:
  tensorlite::Conv2dOptions options_;
  Activation activation_;
};

struct ConvTranspose2dOptions {
  Size2d stride = 1;
  Padding padding = {};
  Size2d output_padding = 0;
  Size2d dilation = 1;
  std::int64_t groups = 1;
  DataFormat format = DataFormat::NHWC;
  bool bias = true;
  Init init = Init::pytorch;
  std::optional<DType> dtype = {};
  std::optional<Device> device = {};
};

/// conv_transpose2d with weight [in, KH, KW, out / groups] and bias [out].
class TL_API ConvTranspose2d : public Module {
 public:
  ConvTranspose2d(std::int64_t in, std::int64_t out, Size2d kernel, const ConvTranspose2dOptions& options = {});
  Tensor& weight() const { return own_parameter(0); }
  Tensor& bias() const { return own_parameter(1); }
  Tensor forward(const Tensor& x) const override { return conv_transpose2d(x, weight(), bias(), options_); }

 private:
  tensorlite::ConvTranspose2dOptions options_;
};

struct BatchNormOptions {
  double momentum = 0.1;      ///< share of the batch in the running statistics (Keras's 0.99 is 0.01 here)
  double eps = 1e-5;          ///< Keras: 1e-3
  bool affine = true;         ///< with weight (ones) and bias (zeros)
  bool track_running = true;  ///< without running statistics evaluation normalises by the batch, too
  DataFormat format = DataFormat::NHWC;
  std::optional<DType> dtype = {};
  std::optional<Device> device = {};
};

/// What BatchNorm1d and BatchNorm2d share; they differ in the ranks they accept.
class TL_API BatchNorm : public Module {
 public:
  Tensor& weight() const { return own_parameter(0); }
  Tensor& bias() const { return own_parameter(1); }
  Tensor& running_mean() const { return own_buffer(0); }
  Tensor& running_var() const { return own_buffer(1); }
  Tensor forward(const Tensor& x) const override;

 protected:
  BatchNorm(const char* kind, int lowest_rank, int highest_rank, std::int64_t channels, const BatchNormOptions& options);

 private:
  int lowest_rank_, highest_rank_;
  tensorlite::BatchNormOptions options_;
};
/// Shapes: [N, C] or [N, L, C].
class TL_API BatchNorm1d : public BatchNorm {
 public:
  explicit BatchNorm1d(std::int64_t channels, const BatchNormOptions& options = {}) : BatchNorm("BatchNorm1d", 2, 3, channels, options) {}
};
/// Shapes: [N, H, W, C].
class TL_API BatchNorm2d : public BatchNorm {
 public:
  explicit BatchNorm2d(std::int64_t channels, const BatchNormOptions& options = {}) : BatchNorm("BatchNorm2d", 4, 4, channels, options) {}
};

struct LayerNormOptions {
  double eps = 1e-5;
  bool affine = true;
  std::optional<DType> dtype = {};
  std::optional<Device> device = {};
};
/// Normalises over the last axes, those of `shape`.
class TL_API LayerNorm : public Module {
 public:
  explicit LayerNorm(const Dims& shape, const LayerNormOptions& options = {});
  Tensor& weight() const { return own_parameter(0); }
  Tensor& bias() const { return own_parameter(1); }
  Tensor forward(const Tensor& x) const override { return layer_norm(x, shape_, weight(), bias(), {.eps = eps_}); }

 private:
  Dims shape_;
  double eps_;
};

struct EmbeddingOptions {
  std::optional<DType> dtype = {};
  std::optional<Device> device = {};
};
/// Rows of a table [count, width], drawn from a normal distribution, by integer index.
class TL_API Embedding : public Module {
 public:
  Embedding(std::int64_t count, std::int64_t width, const EmbeddingOptions& options = {});
  Tensor& weight() const { return own_parameter(0); }
  Tensor forward(const Tensor& index) const override { return embedding(weight(), index); }
};

}  // namespace tensorlite::nn
