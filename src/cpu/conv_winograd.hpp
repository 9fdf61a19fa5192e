// Winograd's F(4x4, 3x3): a quarter of the products of a 3x3 convolution of step 1, for float.
#pragma once

#include "conv_product.hpp"

namespace tensorlite::cpu::TL_CPU_NS {

/// Whether a product has the form that conv_winograd computes, and enough channels and positions to gain by it: each
/// call transforms the weights anew.
template <class In> bool winograd_pays(const ConvProduct<In>& p) {
  const auto axis_fits = [](const ConvAxis& a) { return a.taps == 3 && a.step == 1 && a.tap_step == 1; };
  const auto waste = [](const ConvAxis& a) { return 4.0 * static_cast<double>(ceil_div(a.outputs, 4)) / static_cast<double>(a.outputs); };
  const double tiles = static_cast<double>(p.batch * ceil_div(p.h.outputs, 4) * ceil_div(p.w.outputs, 4));
  return std::is_same_v<In, float> && tiles >= (p.channels * p.outputs > 8192 ? 96 : 28) && axis_fits(p.h) && axis_fits(p.w) &&
         p.groups == 1 && p.channels % kLanes<float> == 0 && p.outputs % kLanes<float> == 0 && p.channels >= 16 && p.outputs >= 16 &&
         p.activation != Activation::gelu && waste(p.h) * waste(p.w) <= 1.8;
}

/// Errors are some ten times those of the direct sum: up to 2e-6 of the sum of the products' magnitudes, 1e-4 of the results' root mean
/// square. An infinity or NaN of the image spreads to the 4x4 results of its tile. `bias`: padded, or null.
void conv_winograd(const Context& context, const ConvProduct<float>& problem, const float* bias);

}  // namespace tensorlite::cpu::TL_CPU_NS
