// Convolution as an implicit matrix product: output positions x (taps * channels) x output channels, without a patch matrix.
#pragma once

#include "conv_region.hpp"

namespace tensorlite::cpu::TL_CPU_NS {

/// Weight of (output channel, tap y, tap x, input channel) of group 0, by strides; group_stride leads to the next group's.
template <class In> struct ConvWeights {
  const In* data;
  std::int64_t output_stride, y_stride, x_stride, channel_stride, group_stride;
};

/// out(n, oy, ox, o) = activation(sum over taps and channels of image * weight + bias). Both gradients with respect to the input and
/// the forward convolution have this form; the output may be every other pixel of a larger image.
template <class In> struct ConvProduct {
  std::int64_t batch, groups;
  std::int64_t channels, outputs;  ///< per group
  ConvAxis h, w;
  ConvImages<In> images;
  ConvWeights<In> weights;
  In* out;
  std::int64_t out_image_stride, out_row_stride, out_pixel_stride;
  const In* bias = nullptr;
  Activation activation = Activation::none;
};

template <class In> void conv_product(const Context& context, const ConvProduct<In>& problem);

}  // namespace tensorlite::cpu::TL_CPU_NS
