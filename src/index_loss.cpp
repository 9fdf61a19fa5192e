// Out-of-line part of ops/index.hpp, ops/loss.hpp and ops/random.hpp.
#include <tensorlite/ops/loss.hpp>
#include <tensorlite/ops/random.hpp>

namespace tensorlite {
namespace detail {
namespace {
Tensor dense(const Tensor& x) {
  NoGradGuard guard;
  return x.detach().contiguous();
}
}  // namespace

Tensor as_index(const char* op, const Tensor& index) {
  TL_CHECK(!is_floating(index.dtype()) && index.dtype() != kBool, DTypeError, op, "indices must be integers, got ", index.dtype());
  return index.to(kInt64);
}

Tensor refuse_negative(const char* op, const Tensor& index, std::int64_t size) {
  const Tensor negative = index < 0;
  if (negative.device().is_gpu()) return masked_fill(index, negative, std::numeric_limits<std::int64_t>::min());
  TL_CHECK(!any(negative).item<bool>(), IndexError, op, "index ", min(index).item<std::int64_t>(), " is negative; expected one in [0, ",
           size, ")");
  return index;
}

Tensor gather_forward(const Tensor& x, const Tensor& index, int axis) {
  const Placed<2> in("GatherNd", x, index);
  Tensor out = make_tensor(index.sizes(), x.dtype(), in.device);
  TL_CALL(in, gather, out.raw(), in.view(0), in.view(1), axis);
  return out;
}

Tensor scatter_add_zeros(const Dims& sizes, const Tensor& index, const Tensor& source, int axis) {
  const Placed<2> in("ScatterAdd", index, source);
  Tensor out = zeros(sizes, {.dtype = source.dtype(), .device = in.device});
  TL_CALL(in, scatter_add, out.raw(), in.view(0), in.view(1), axis);
  return out;
}

Tensor index_select_forward(const Tensor& x, const Tensor& index, int axis) {
  const Placed<2> in("GatherV2", x, index);
  Dims sizes = x.sizes();
  sizes[axis] = index.numel();
  Tensor out = make_tensor(sizes, x.dtype(), in.device);
  TL_CALL(in, index_select, out.raw(), in.view(0), dense(in[1]).raw(), axis);
  return out;
}

Tensor index_add_zeros(const Dims& sizes, const Tensor& index, const Tensor& source, int axis) {
  const Placed<2> in("IndexAdd", index, source);
  Tensor out = zeros(sizes, {.dtype = source.dtype(), .device = in.device});
  TL_CALL(in, index_add, out.raw(), dense(in[0]).raw(), in.view(1), axis);
  return out;
}

// ---------------------------------------------------------------------------------------------------------------------- losses

std::pair<Tensor, Tensor> cross_entropy_forward(const Tensor& logits, const Tensor& labels, CrossEntropyParams params) {
  const char* op = "SparseSoftmaxCrossEntropyWithLogits";
  TL_CHECK(is_floating(logits.dtype()), DTypeError, "cross_entropy", "logits must be floating, got ", logits.dtype());
  const Placed<2> in(op, logits, labels);
  const DType dtype = logits.dtype() == kFloat64 ? kFloat64 : kFloat32;
  const std::int64_t rows = logits.sizes()[0];
  Tensor losses = make_tensor({rows}, dtype, in.device), log_sum_exp = make_tensor({rows}, dtype, in.device);
  TL_CALL(in, cross_entropy, losses.raw(), log_sum_exp.raw(), dense(in[0]).raw(), dense(in[1]).raw(), params);
  return {losses, log_sum_exp};
}

std::pair<Tensor, Tensor> mean_of_rows(const Tensor& losses, const Tensor& labels, std::int64_t ignore_index) {
  const Placed<2> in("Mean", losses, labels);
  Tensor mean = make_tensor({}, losses.dtype(), in.device), share = make_tensor({}, losses.dtype(), in.device);
  TL_CALL(in, mean_of_rows, mean.raw(), share.raw(), dense(in[0]).reshape({-1}).raw(), dense(in[1]).reshape({-1}).raw(), ignore_index);
  return {mean, share};
}

Tensor cross_entropy_gradient(const Tensor& g, const Tensor& logits, const Tensor& log_sum_exp, const Tensor& labels,
                              CrossEntropyParams params) {
  const Placed<4> in("SparseSoftmaxCrossEntropyWithLogitsGrad", g, logits, log_sum_exp, labels);
  Tensor out = make_tensor(logits.sizes(), logits.dtype(), in.device);
  const Tensor gradients = in[0].dim() == 1 && in[0].stride(0) == 0 ? in[0] : dense(in[0]);
  TL_CALL(in, cross_entropy_backward, out.raw(), gradients.raw(), dense(in[1]).raw(), dense(in[2]).raw(), dense(in[3]).raw(), params);
  return out;
}

Tensor cross_entropy_gradient_recorded(const Tensor& g, const Tensor& logits, const Tensor& labels, CrossEntropyParams params) {
  const std::int64_t classes = logits.size(-1);
  const double s = params.label_smoothing;
  const Tensor ignored = labels == params.ignore_index;
  const Tensor target = one_hot(masked_fill(labels, ignored, 0), classes, logits.dtype()) * (1 - s) + s / static_cast<double>(classes);
  return unsqueeze(masked_fill(g, ignored, 0), -1) * (softmax(logits, -1) - target);
}

// ---------------------------------------------------------------------------------------------------------------------- random

Tensor dropout_forward(const Tensor& x, double p, PhiloxKey key) {
  const Placed<1> in("Dropout", x);
  Tensor out = make_tensor(x.sizes(), x.dtype(), in.device);
  TL_CALL(in, dropout, out.raw(), dense(in[0]).raw(), p, key);
  return out;
}

void random_(Tensor& x, const char* op, RandomKind kind, double a, double b) {
  TL_CHECK(is_floating(x.dtype()), DTypeError, op, "needs a floating tensor, got ", x.dtype());
  const PhiloxKey key = next_philox_key();
  const bool recorded = records_inplace(op, x, {});
  Tensor target = !recorded && x.is_contiguous() ? x : make_tensor(x.sizes(), x.dtype(), x.device());
  TL_CALL((OpPlace{op, x.device()}), random, kind, target.raw(), key, a, b);
  if (recorded) assign_recorded(op, x, target);
  else if (target.impl() == x.impl()) bump_version(x);
  else x.copy_(target);
}

}  // namespace detail

Tensor one_hot(const Tensor& index, std::int64_t classes, DType dtype) {
  TL_CHECK(classes > 0, ValueError, "one_hot", "the number of classes must be positive, it is ", classes);
  Tensor places = detail::as_index("one_hot", index);
  const DeviceScope scope(places.device());
  const Tensor numbers = arange(0, classes);
  if (places.device().is_gpu()) {  // which is not waited for: index_select has it checked
    const Tensor flat = detail::refuse_negative("one_hot", places.reshape({-1}), classes);
    places = index_select(numbers, 0, flat).reshape(places.sizes());
  } else if (places.numel() > 0) {
    const std::int64_t low = min(places).item<std::int64_t>(), high = max(places).item<std::int64_t>();
    TL_CHECK(low >= 0 && high < classes, IndexError, "one_hot", "index ", low < 0 ? low : high, " is outside [0, ", classes, ")");
  }
  return (unsqueeze(places, -1) == numbers).to(dtype);
}

}  // namespace tensorlite
