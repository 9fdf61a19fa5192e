// conv2d and its gradients: a matrix product where it is one, else cuDNN with the bias fused, cuDNN without it, our own kernels.
#include "conv.hpp"

#include "gemm.hpp"

namespace tensorlite::cuda {
namespace {

/// Every pixel by itself: [pixels, c] x [c, o].
bool is_product(const View& weight, const ConvParams& p) {
  bool plain = weight.size(1) == 1 && weight.size(2) == 1 && p.groups == 1 && p.stride[0] == 1 && p.stride[1] == 1;
  for (const std::int64_t side : p.padding) plain = plain && side == 0;
  return plain;
}
/// A dense tensor as one matrix [rows, last axis], or that transposed.
View matrix(const View& dense) {
  const std::int64_t columns = dense.size(dense.dim() - 1), rows = columns ? dense.numel() / columns : 0;
  return {dense.data, dense.dtype, dense.device, Dims{1, rows, columns}, Dims{rows * columns, columns, 1}};
}
View transposed(const View& m) {
  return {m.data, m.dtype, m.device, Dims{1, m.size(2), m.size(1)}, Dims{m.stride(0), m.stride(2), m.stride(1)}};
}

/// grad_bias[o] = sum of grad_out over all pixels.
void bias_gradient(const Context& context, const View& grad_bias, const View& grad_out) {
  View out = grad_bias;
  out.sizes = {1, 1, 1, grad_bias.numel()};
  out.strides = contiguous_strides(out.sizes);
  reduce(context, ReduceOp::sum, out, grad_out, 0b0111, 0);
}

}  // namespace

void conv2d(const Context& context, const View& out, const View& in, const View& weight, const View& bias, ConvParams params,
            Activation activation) {
  if (out.numel() == 0) return;
  if (is_product(weight, params)) return matmul(context, matrix(out), matrix(in), transposed(matrix(weight)), bias, activation);
  const Convolution conv{ConvKind::forward, in, weight, out, params};
  const bool epilogue = bias.present || activation != Activation::none;
  if (epilogue && activation != Activation::gelu && cudnn_convolution(context, conv, bias, activation)) return;
  if (!cudnn_convolution(context, conv, {}, Activation::none)) own_convolution(context, conv);
  add_bias(context, out, bias, activation);
}

void conv2d_backward_input(const Context& context, const View& grad_in, const View& grad_out, const View& weight, ConvParams params) {
  if (grad_in.numel() == 0) return;
  if (is_product(weight, params)) return matmul(context, matrix(grad_in), matrix(grad_out), matrix(weight), {}, Activation::none);
  const Convolution conv{ConvKind::backward_input, grad_in, weight, grad_out, params};
  if (!cudnn_convolution(context, conv, {}, Activation::none)) own_convolution(context, conv);
}

void conv2d_backward_weight(const Context& context, const View& grad_weight, const View& grad_bias, const View& grad_out, const View& in,
                            ConvParams params) {
  if (grad_bias.present) bias_gradient(context, grad_bias, grad_out);
  if (grad_weight.numel() == 0) return;
  if (is_product(grad_weight, params))
    return matmul(context, matrix(grad_weight), transposed(matrix(grad_out)), matrix(in), {}, Activation::none);
  const Convolution conv{ConvKind::backward_weight, in, grad_weight, grad_out, params};
  if (!cudnn_convolution(context, conv, {}, Activation::none)) own_convolution(context, conv);
}

}  // namespace tensorlite::cuda
