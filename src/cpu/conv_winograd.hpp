// Winograd's F(4x4, 3x3) and F(2x2, 5x5), for float: a quarter of the products of a 3x3 convolution of step 1, 0.36 of those of a 5x5.
#pragma once

#include "conv_product.hpp"

namespace tensorlite::cpu::TL_CPU_NS {

namespace winograd {
/// Results of one tile along an axis, for a kernel of 3 or 5 taps.
constexpr int outputs_of(int taps) { return 7 - taps; }
inline bool axis_fits(const ConvAxis& a) { return (a.taps == 3 || a.taps == 5) && a.step == 1 && a.tap_step == 1 && a.outputs > 0; }
inline std::int64_t axis_tiles(const ConvAxis& a) { return ceil_div(a.outputs, outputs_of(static_cast<int>(a.taps))); }
/// Positions computed over positions wanted.
inline double waste(const ConvAxis& a) {
  return static_cast<double>(axis_tiles(a) * outputs_of(static_cast<int>(a.taps))) / static_cast<double>(a.outputs);
}
/// Enough tiles to repay the transforms of weights; channels in whole packets.
inline bool sizes_fit(std::int64_t batch, const ConvAxis& h, const ConvAxis& w, std::int64_t channels, std::int64_t outputs) {
  if (!axis_fits(h) || !axis_fits(w) || h.taps != w.taps || waste(h) * waste(w) > 1.8) return false;
  const std::int64_t tiles = batch * axis_tiles(h) * axis_tiles(w);
  return channels % kLanes<float> == 0 && outputs % kLanes<float> == 0 && channels >= 16 && outputs >= 16 &&
         tiles >= (channels * outputs > 8192 ? 96 : 28);
}
}  // namespace winograd

/// Whether a product has the form that conv_winograd computes, and sizes that gain by it.
template <class In> bool winograd_pays(const ConvProduct<In>& p) {
  return std::is_same_v<In, float> && p.groups == 1 && p.activation != Activation::gelu &&
         winograd::sizes_fit(p.batch, p.h, p.w, p.channels, p.outputs);
}

/// Errors are some ten times those of the direct sum: up to 2e-6 of the sum of the products' magnitudes, 1e-4 of the results' root mean
/// square. An infinity or NaN of the image spreads to all results of its tile. `bias`: padded, or null.
void conv_winograd(const Context& context, const ConvProduct<float>& problem, const float* bias);

/// grad_weight [outputs, taps, taps, channels] and grad_bias [outputs] (or null); grad_out dense.
struct WinogradGradient {
  std::int64_t batch, channels, outputs;
  ConvAxis h, w;
  ConvImages<float> images;
  const float* grad_out;
  float *grad_weight, *grad_bias;

  bool pays() const { return channels <= 512 && winograd::sizes_fit(batch, h, w, channels, outputs); }
};
void winograd_weight_gradient(const Context& context, const WinogradGradient& problem);

}  // namespace tensorlite::cpu::TL_CPU_NS
