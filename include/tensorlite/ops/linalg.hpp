// L3: matrix products.
#pragma once

#include <tensorlite/ops/reduce.hpp>

namespace tensorlite {

namespace detail {
/// [B, M, K] x [B, K, N] (+ bias [N], activation), not recorded; any strides.
TL_API Tensor matmul3d(const char* op, const Tensor& a, const Tensor& b, const Tensor& bias, Activation activation);
/// NumPy's rules for vectors and batches on top of it, not recorded.
TL_API Tensor matmul_any(const Tensor& a, const Tensor& b);
}  // namespace detail

/// Matrix product as NumPy's: vectors are rows or columns, leading axes broadcast as batches; integers multiply exactly.
/// Shapes: [..., m, k] x [..., k, n]. Throws ShapeError.
inline Tensor matmul(const Tensor& a, const Tensor& b) {
  if (detail::lowers(a, b)) return matmul(detail::lowered(a), detail::lowered(b));
  return detail::record("MatMul", detail::matmul_any(a, b), {a, b}, {a, b}, [](const BackwardContext& c, const Tensor& g) {
    const Tensor x = c.saved(0), y = c.saved(1);
    // Vectors as matrices, so that one formula serves all; the engine sums over broadcast batches.
    const Tensor x2 = x.dim() == 1 ? unsqueeze(x, 0) : x, y2 = y.dim() == 1 ? unsqueeze(y, 1) : y;
    Tensor g2 = x.dim() == 1 ? unsqueeze(g, g.dim() - (y.dim() == 1 ? 0 : 1)) : g;
    if (y.dim() == 1) g2 = unsqueeze(g2, g2.dim());
    Gradients grads(2);
    if (c.needs(0)) grads[0] = matmul(g2, transpose(y2, -2, -1));
    if (c.needs(1)) grads[1] = matmul(transpose(x2, -2, -1), g2);
    if (c.needs(0) && x.dim() == 1) grads[0] = squeeze(grads[0], -2);
    if (c.needs(1) && y.dim() == 1) grads[1] = squeeze(grads[1], -1);
    return grads;
  });
}

/// x weight^T + bias, then the activation, in one kernel. Shapes: x [..., in], weight [out, in], bias [out] or undefined. Throws
/// ShapeError.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, Activation activation = Activation::none);

namespace detail {
/// All leading axes as one.
inline Tensor as_matrix(const Tensor& x) {
  Dims leading = x.sizes();
  leading.pop_back();
  return reshape(x, {leading.product(), x.size(-1)});
}
/// The gradient before a fused activation, from the result alone (none, relu).
inline Tensor before_activation(const Tensor& g, const Tensor& result, Activation activation, bool recording) {
  if (activation == Activation::none) return g;
  if (recording) return g * (result > 0).to(g.dtype());
  Tensor out = make_tensor(g.sizes(), g.dtype(), g.device());
  const Tensor dense = g.contiguous();
  TL_CALL((OpPlace{"ReluGrad", g.device()}), unary_backward, UnaryOp::Relu, out.raw(), dense.raw(), View(), result.raw(), UnaryParams{});
  return out;
}
TL_API Tensor linear_forward(const Tensor& x, const Tensor& weight, const Tensor& bias, Activation activation);
}  // namespace detail

inline Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Activation activation) {
  if (detail::lowers(x, weight, bias)) return linear(detail::lowered(x), detail::lowered(weight), detail::lowered(bias), activation);
  const detail::TensorRef inputs[] = {x, weight, bias};
  // The gradient of gelu needs its input, which the fused kernel does not keep.
  if (activation == Activation::gelu && detail::must_record("MatMul", inputs)) return gelu(linear(x, weight, bias));
  const Tensor out = detail::linear_forward(x, weight, bias, activation);
  const Tensor kept = activation == Activation::none ? Tensor() : out;
  return detail::record("MatMul", out, {x, weight, bias}, {x, weight, kept}, [activation](const BackwardContext& c, const Tensor& g) {
    const Tensor x_ = c.saved(0), w = c.saved(1);
    const Tensor g2 = detail::as_matrix(detail::before_activation(g, c.saved(2), activation, c.recording()));
    Gradients grads(3);
    if (c.needs(0)) grads[0] = reshape(matmul(g2, w), x_.sizes());
    if (c.needs(1)) grads[1] = matmul(transpose(g2, 0, 1), detail::as_matrix(x_));
    if (c.needs(2)) grads[2] = sum(g2, {0});
    return grads;
  });
}

}  // namespace tensorlite
