// Depthwise convolution: every channel on its own, channels side by side in a packet.
#pragma once

#include "conv_product.hpp"

namespace tensorlite::cpu::TL_CPU_NS {

/// A product whose groups have one channel and one output each; `bias`: padded, or null.
template <class In> void conv_depthwise(const Context& context, const ConvProduct<In>& problem, const GemmType<In>* bias);

/// grad_weight [groups, taps] and grad_bias [groups] (or null) of such a convolution; grad_out dense [batch, h, w, groups].
template <class In> struct DepthwiseGradient {
  std::int64_t batch, groups;
  ConvAxis h, w;
  ConvImages<In> images;
  const In* grad_out;
  In *grad_weight, *grad_bias;
};
template <class In> void depthwise_weight_gradient(const Context& context, const DepthwiseGradient<In>& problem);

}  // namespace tensorlite::cpu::TL_CPU_NS
