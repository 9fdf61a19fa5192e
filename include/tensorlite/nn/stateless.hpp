// L4: layers without parameters: each is a function of ops/*.hpp as a module.
#pragma once

#include <tensorlite/nn/module.hpp>

namespace tensorlite::nn {

// --------------------------------------------------------------------------------------------------------------- activations
#define TL_LAYER(name, result)                                        \
  class TL_API name : public Module {                                 \
   public:                                                            \
    name() : Module(#name) {}                                         \
    Tensor forward(const Tensor& x) const override { return result; } \
  }
TL_LAYER(Identity, x);
TL_LAYER(ReLU, relu(x));
TL_LAYER(GELU, gelu(x));
TL_LAYER(SiLU, silu(x));
TL_LAYER(Sigmoid, sigmoid(x));
TL_LAYER(Tanh, tanh(x));
#undef TL_LAYER

class TL_API LeakyReLU : public Module {
 public:
  explicit LeakyReLU(SlopeOptions options = {}) : Module("LeakyReLU"), options_(options) {}
  Tensor forward(const Tensor& x) const override { return leaky_relu(x, options_); }

 private:
  SlopeOptions options_;
};
class TL_API ELU : public Module {
 public:
  explicit ELU(AlphaOptions options = {}) : Module("ELU"), options_(options) {}
  Tensor forward(const Tensor& x) const override { return elu(x, options_); }

 private:
  AlphaOptions options_;
};
class TL_API Softmax : public Module {
 public:
  explicit Softmax(int axis = -1) : Module("Softmax"), axis_(axis) {}
  Tensor forward(const Tensor& x) const override { return softmax(x, axis_); }

 private:
  int axis_;
};
class TL_API LogSoftmax : public Module {
 public:
  explicit LogSoftmax(int axis = -1) : Module("LogSoftmax"), axis_(axis) {}
  Tensor forward(const Tensor& x) const override { return log_softmax(x, axis_); }

 private:
  int axis_;
};

// ------------------------------------------------------------------------------------------------------------------- pooling
class TL_API MaxPool2d : public Module {
 public:
  explicit MaxPool2d(Size2d window, const MaxPool2dOptions& options = {}) : Module("MaxPool2d"), window_(window), options_(options) {}
  Tensor forward(const Tensor& x) const override { return max_pool2d(x, window_, options_); }

 private:
  Size2d window_;
  MaxPool2dOptions options_;
};
class TL_API AvgPool2d : public Module {
 public:
  explicit AvgPool2d(Size2d window, const AvgPool2dOptions& options = {}) : Module("AvgPool2d"), window_(window), options_(options) {}
  Tensor forward(const Tensor& x) const override { return avg_pool2d(x, window_, options_); }

 private:
  Size2d window_;
  AvgPool2dOptions options_;
};
class TL_API AdaptiveAvgPool2d : public Module {
 public:
  explicit AdaptiveAvgPool2d(Size2d output, DataFormat format = DataFormat::NHWC)
      : Module("AdaptiveAvgPool2d"), output_(output), format_(format) {}
  Tensor forward(const Tensor& x) const override { return adaptive_avg_pool2d(x, output_, format_); }

 private:
  Size2d output_;
  DataFormat format_;
};

// -------------------------------------------------------------------------------------------------------------------- others

/// Axes begin..end as one; the default keeps the batch.
class TL_API Flatten : public Module {
 public:
  explicit Flatten(int begin = 1, int end = -1) : Module("Flatten"), begin_(begin), end_(end) {}
  Tensor forward(const Tensor& x) const override { return flatten(x, begin_, end_); }

 private:
  int begin_, end_;
};

/// Zeroes elements with probability p in training and scales the others by 1 / (1 - p); the identity in evaluation.
/// Throws ValueError unless 0 <= p <= 1.
class TL_API Dropout : public Module {
 public:
  explicit Dropout(double p = 0.5) : Module("Dropout"), p_(p) {
    TL_CHECK(p >= 0 && p <= 1, ValueError, "Dropout", "the probability must be in [0, 1], it is ", p);
  }
  Tensor forward(const Tensor& x) const override { return is_training() ? dropout(x, p_) : x; }

 private:
  double p_;
};

}  // namespace tensorlite::nn
