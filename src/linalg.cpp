// Out-of-line part of ops/linalg.hpp: shapes and batches of matrix products.
#include <tensorlite/ops/linalg.hpp>

namespace tensorlite::detail {
namespace {

/// A product axis of size K: both sides agree.
void check_inner(const char* op, const Tensor& a, const Tensor& b, std::int64_t ka, std::int64_t kb) {
  TL_CHECK(ka == kb, ShapeError, op, "shapes ", a.sizes(), " and ", b.sizes(), " do not fit: the inner sizes are ", ka, " and ", kb);
}

/// The same elements with all leading axes as one, without a copy where the strides allow it.
Tensor as_batches(const Tensor& x, const Dims& batch) {
  Dims sizes = batch;
  sizes.push_back(x.size(-2));
  sizes.push_back(x.size(-1));
  const Tensor spread = make_view(x, sizes, broadcast_view(x.raw(), sizes).strides);
  const Dims flat{batch.product(), x.size(-2), x.size(-1)};
  const std::optional<Dims> strides = strides_for(spread.raw(), flat);
  if (strides) return make_view(spread, flat, *strides);
  return make_view(spread.contiguous(), flat, contiguous_strides(flat));
}

}  // namespace

Tensor matmul3d(const char* op, const Tensor& a, const Tensor& b, const Tensor& bias, Activation activation) {
  const Placed<2> in(op, a, b);
  const Tensor offset = !bias.defined() ? bias : bias.detach().to(in.device).to(a.dtype()).contiguous();
  Tensor out = make_tensor({a.sizes()[0], a.sizes()[1], b.sizes()[2]}, a.dtype(), in.device);
  TL_CALL(in, matmul, out.raw(), in.view(0), in.view(1), offset.defined() ? offset.raw() : View(), activation);
  return out;
}

Tensor matmul_any(const Tensor& a, const Tensor& b) {
  TL_CHECK(a.dim() > 0 && b.dim() > 0, ShapeError, "matmul", "0-d operands have no product axis: shapes ", a.sizes(), " and ", b.sizes(),
           "; use mul()");
  NoGradGuard guard;
  const DType dtype = promote(a.dtype(), b.dtype());
  TL_CHECK(dtype != kBool && dtype != kUInt8, DTypeError, "matmul", "needs numbers wider than ", dtype, "; convert with to()");
  Tensor x = a.detach().to(dtype), y = b.detach().to(dtype);
  if (a.dim() == 1) x = unsqueeze(x, 0);
  if (b.dim() == 1) y = unsqueeze(y, 1);
  check_inner("matmul", a, b, x.size(-1), y.size(-2));
  Dims batch_a = x.sizes(), batch_b = y.sizes();
  for (int i = 0; i < 2; ++i) {
    batch_a.pop_back();
    batch_b.pop_back();
  }
  const Dims batch = broadcast_sizes("matmul", batch_a, batch_b);
  Dims sizes = batch;
  if (a.dim() > 1) sizes.push_back(x.size(-2));
  if (b.dim() > 1) sizes.push_back(y.size(-1));
  // One matrix on the right for all batches: a single tall product.
  if (batch_b.product() == 1 && batch_a == batch && batch.product() > 1) {
    const Tensor tall = reshape(x, {1, batch.product() * x.size(-2), x.size(-1)});
    return reshape(matmul3d("MatMul", tall, as_batches(y, {1}), {}, Activation::none), sizes);
  }
  return reshape(matmul3d("MatMul", as_batches(x, batch), as_batches(y, batch), {}, Activation::none), sizes);
}

Tensor linear_forward(const Tensor& x, const Tensor& weight, const Tensor& bias, Activation activation) {
  TL_CHECK(weight.dim() == 2, ShapeError, "linear", "the weight must be [out, in], it has shape ", weight.sizes());
  TL_CHECK(x.dim() > 0 && x.size(-1) == weight.sizes()[1], ShapeError, "linear", "input ", x.sizes(), " does not fit weight ",
           weight.sizes(), ": its last size must be ", weight.sizes()[1]);
  TL_CHECK(!bias.defined() || bias.sizes() == Dims({weight.sizes()[0]}), ShapeError, "linear", "the bias must have shape [",
           weight.sizes()[0], "], it has ", bias.sizes());
  NoGradGuard guard;
  const DType dtype = promote(x.dtype(), weight.dtype());
  Dims sizes = x.sizes();
  std::int64_t leading = 1;
  for (int i = 0; i + 1 < x.dim(); ++i) leading *= sizes[i];
  sizes.back() = weight.sizes()[0];
  const Tensor rows = reshape(x.detach().to(dtype), {1, leading, x.size(-1)});
  const Tensor columns = unsqueeze(transpose(weight.detach().to(dtype), 0, 1), 0);
  return reshape(matmul3d("MatMul", rows, columns, bias, activation), sizes);
}

}  // namespace tensorlite::detail
