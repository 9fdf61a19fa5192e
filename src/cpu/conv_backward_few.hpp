// The input gradient of a convolution over few channels (an image's): its patches are computed whole and added where they belong, since
// a tile of output channels would be mostly empty.
#pragma once

#include "conv_region.hpp"

namespace tensorlite::cpu::TL_CPU_NS {

/// All arrays dense; weight is [outputs, taps, taps, channels]. h and w are the forward axes.
template <class T> struct FewChannels {
  std::int64_t batch, channels, outputs;
  ConvAxis h, w;
  const T *grad_out, *weight;
  T* grad_in;

  std::int64_t patch() const { return h.taps * w.taps * channels; }
  /// Whether the taps of a row are neighbours in memory, and the channels so few that this way gains.
  bool pays() const { return w.tap_step == 1 && 4 * channels <= kLanes<T> && patch() > 0 && outputs > 0; }
};

template <class T> void few_channels_backward(const Context& context, const FewChannels<T>& problem);

}  // namespace tensorlite::cpu::TL_CPU_NS
