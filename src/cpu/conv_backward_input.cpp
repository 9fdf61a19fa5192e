#include "conv_backward_few.hpp"
#include "conv_product.hpp"
#include "dispatch.hpp"
#include "kernels.hpp"

#include <numeric>

namespace tensorlite::cpu::TL_CPU_NS {
namespace {

/// The input positions first, first + stride, ... of one axis: the taps that reach them are every `every`-th one, down from `last_tap`.
/// Seen from these positions the gradient is a convolution of step 1 over the output gradient.
struct Phase {
  ConvAxis axis;
  std::int64_t first = 0, last_tap = 0, every = 1;
};

Phase make_phase(const ConvParams& p, int axis, std::int64_t first, std::int64_t input, std::int64_t output, std::int64_t kernel) {
  const std::int64_t stride = p.stride[axis], dilation = p.dilation[axis], at = first + p.padding[2 * axis];
  const std::int64_t common = std::gcd(stride, dilation);
  Phase phase;
  phase.first = first;
  phase.every = stride / common;
  phase.axis = {output, ceil_div(input - first, stride), 0, 1, dilation / common, 0};
  for (std::int64_t tap = 0; tap < kernel; ++tap) {
    if ((at - tap * dilation) % stride != 0) continue;
    phase.axis.origin = (at - tap * dilation) / stride;  // exact, of either sign
    phase.last_tap = tap;
    ++phase.axis.taps;
  }
  return phase;
}

}  // namespace

void conv2d_backward_input(const Context& context, const View& grad_in, const View& grad_out, const View& weight, ConvParams params) {
  dispatch_floating(context.op, grad_in.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const std::int64_t ih = grad_in.size(1), iw = grad_in.size(2), c = grad_in.size(3), o = grad_out.size(3);
    const std::int64_t kh = weight.size(1), kw = weight.size(2), group_c = weight.size(3), tap = kh * kw * group_c;
    if constexpr (std::is_same_v<T, GemmType<T>>) {
      const FewChannels<T> few{grad_in.size(0),
                               c,
                               o,
                               forward_axis(params, 0, ih, grad_out.size(1), kh),
                               forward_axis(params, 1, iw, grad_out.size(2), kw),
                               grad_out.ptr<const T>(),
                               weight.ptr<const T>(),
                               grad_in.ptr<T>()};
      if (params.groups == 1 && few.pays()) return few_channels_backward(context, few);
    }
    ConvProduct<T> p;
    p.batch = grad_in.size(0);
    p.groups = params.groups;
    p.channels = o / params.groups;
    p.outputs = group_c;
    p.images = {grad_out.ptr<const T>(), grad_out.size(1), grad_out.size(2), o};
    p.out_image_stride = ih * iw * c;
    for (std::int64_t y = 0; y < std::min(params.stride[0], ih); ++y)
      for (std::int64_t x = 0; x < std::min(params.stride[1], iw); ++x) {
        const Phase h = make_phase(params, 0, y, ih, grad_out.size(1), kh), w = make_phase(params, 1, x, iw, grad_out.size(2), kw);
        p.h = h.axis;
        p.w = w.axis;
        p.weights = {weight.ptr<const T>() + (h.last_tap * kw + w.last_tap) * group_c,
                     1,
                     -h.every * kw * group_c,
                     -w.every * group_c,
                     tap,
                     p.channels * tap};
        p.out = grad_in.ptr<T>() + (y * iw + x) * c;
        p.out_row_stride = params.stride[0] * iw * c;
        p.out_pixel_stride = params.stride[1] * c;
        conv_product(context, p);
      }
  });
}

}  // namespace tensorlite::cpu::TL_CPU_NS
