// conv2d and its gradients: cuDNN with the bias fused, cuDNN without it, our own kernels, in this order.
#include "conv.hpp"

#include "gemm.hpp"

namespace tensorlite::cuda {

void conv2d(const Context& context, const View& out, const View& in, const View& weight, const View& bias, ConvParams params,
            Activation activation) {
  if (out.numel() == 0) return;
  const Convolution conv{ConvKind::forward, in, weight, out, params};
  const bool epilogue = bias.present || activation != Activation::none;
  if (epilogue && activation != Activation::gelu && cudnn_convolution(context, conv, bias, activation)) return;
  if (!cudnn_convolution(context, conv, {}, Activation::none)) own_convolution(context, conv);
  add_bias(context, out, bias, activation);
}

void conv2d_backward_input(const Context& context, const View& grad_in, const View& grad_out, const View& weight, ConvParams params) {
  if (grad_in.numel() == 0) return;
  const Convolution conv{ConvKind::backward_input, grad_in, weight, grad_out, params};
  if (!cudnn_convolution(context, conv, {}, Activation::none)) own_convolution(context, conv);
}

void conv2d_backward_weight(const Context& context, const View& grad_weight, const View& grad_bias, const View& grad_out, const View& in,
                            ConvParams params) {
  if (grad_bias.present) bias_gradient(context, grad_bias, grad_out);
  if (grad_weight.numel() == 0) return;
  const Convolution conv{ConvKind::backward_weight, in, grad_weight, grad_out, params};
  if (!cudnn_convolution(context, conv, {}, Activation::none)) own_convolution(context, conv);
}

}  // namespace tensorlite::cuda
