#include "conv_product.hpp"
#include "dispatch.hpp"
#include "kernels.hpp"

namespace tensorlite::cpu::TL_CPU_NS {

void conv2d(const Context& context, const View& out, const View& in, const View& weight, const View& bias, ConvParams params,
            Activation activation) {
  dispatch_floating(context.op, out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const std::int64_t oh = out.size(1), ow = out.size(2), o = out.size(3), kh = weight.size(1), kw = weight.size(2), c = weight.size(3);
    ConvProduct<T> p;
    p.batch = in.size(0);
    p.groups = params.groups;
    p.channels = c;
    p.outputs = o / params.groups;
    p.h = forward_axis(params, 0, in.size(1), oh, kh);
    p.w = forward_axis(params, 1, in.size(2), ow, kw);
    p.images = {in.ptr<const T>(), in.size(1), in.size(2), in.size(3)};
    p.weights = {weight.ptr<const T>(), kh * kw * c, kw * c, c, 1, p.outputs * kh * kw * c};
    p.out = out.ptr<T>();
    p.out_image_stride = oh * ow * o;
    p.out_row_stride = ow * o;
    p.out_pixel_stride = o;
    p.bias = bias ? bias.ptr<const T>() : nullptr;
    p.activation = activation;
    conv_product(context, p);
  });
}

}  // namespace tensorlite::cpu::TL_CPU_NS
