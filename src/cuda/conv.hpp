// Convolution: by cuDNN, else by our own implicit products.
#pragma once

#include "common.hpp"

namespace tensorlite::cuda {

enum class ConvKind : std::uint8_t { forward, backward_input, backward_weight };

/// One convolution whatever its direction: image [n, h, w, c], weight [o, kh, kw, c / groups], result [n, oh, ow, o], all dense.
struct Convolution {
  ConvKind kind;
  const View &image, &weight, &result;  ///< one of them is written: result, image or weight by kind
  ConvParams params;
};

/// Ours: any floating-point dtype, any parameters. No bias.
void own_convolution(const Context& context, const Convolution& conv);

/// Ours, faster: float32, forward and weight gradient, whole quads of output (forward: and input) channels, no groups. False, and nothing
/// is done, for others.
bool tile_convolution(const Context& context, const Convolution& conv, const View& bias, Activation activation);

/// cuDNN's: false when it is not there or has no plan for this. With `bias` or relu (forward only) these are fused, or it is false.
bool cudnn_convolution(const Context& context, const Convolution& conv, const View& bias, Activation activation);

}  // namespace tensorlite::cuda
