// Out-of-line L2: the creation functions.
#include <tensorlite/autograd.hpp>
#include <tensorlite/detail/philox.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tensorlite {
namespace {

Device resolve_device(const char* op, const TensorOptions& options) {
  if (!options.device) return detail::creation_device(op);
  detail::require_device(op, *options.device);
  return *options.device;
}

void check_sizes(const char* op, const Dims& sizes, DType dtype) {
  constexpr std::int64_t kMaxBytes = std::numeric_limits<std::int64_t>::max();
  bool empty = false;
  for (std::int64_t n : sizes) {
    TL_CHECK(n >= 0, ShapeError, op, "a negative size in ", sizes);
    empty = empty || n == 0;
  }
  std::int64_t bytes = size_of(dtype);
  for (std::int64_t n : sizes) {
    if (empty) break;
    TL_CHECK(bytes <= kMaxBytes / n, ShapeError, op, "shape ", sizes, " of ", dtype, " has more bytes than 64 bits can count");
    bytes *= n;
  }
}

Tensor make(const char* op, const Dims& sizes, DType fallback, const TensorOptions& options) {
  const DType dtype = options.dtype.value_or(fallback);
  check_sizes(op, sizes, dtype);
  return detail::make_tensor(sizes, dtype, resolve_device(op, options));
}

Tensor finish(Tensor out, const TensorOptions& options) {
  if (options.requires_grad) out.requires_grad_();
  return out;
}

TensorOptions options_like(const Tensor& like, TensorOptions options) {
  if (!options.dtype) options.dtype = like.dtype();
  if (!options.device) options.device = like.device();
  return options;
}

Tensor filled(const char* op, const Dims& sizes, Scalar value, DType fallback, const TensorOptions& options) {
  Tensor out = make(op, sizes, fallback, options);
  TL_CALL((detail::OpPlace{op, out.device()}), fill, out.raw(), value);
  return finish(out, options);
}

Tensor drawn(const char* op, const Dims& sizes, RandomKind kind, double a, double b, DType fallback, const TensorOptions& options) {
  Tensor out = make(op, sizes, fallback, options);
  TL_CALL((detail::OpPlace{op, out.device()}), random, kind, out.raw(), next_philox_key(), a, b);
  return finish(out, options);
}

void collect(const std::vector<detail::Nested>& list, const Dims& sizes, int depth, std::vector<Scalar>& out) {
  TL_CHECK(static_cast<std::int64_t>(list.size()) == sizes[depth], ShapeError, "Tensor", "ragged braces: ", list.size(), " elements where ",
           sizes[depth], " are expected at depth ", depth);
  for (const detail::Nested& item : list) {
    const bool is_list = item.kind() == detail::Nested::Kind::list;
    TL_CHECK(is_list == (depth + 1 < sizes.size()), ShapeError, "Tensor", "ragged braces: numbers and lists side by side at depth ", depth);
    if (is_list) collect(item.list(), sizes, depth + 1, out);
    else out.push_back(item.value());
  }
}

detail::Nested::Kind widest_kind(const std::vector<detail::Nested>& list) {
  using Kind = detail::Nested::Kind;
  if (list.empty()) return Kind::real;
  Kind widest = Kind::boolean;
  for (const auto& item : list) widest = std::max(widest, item.kind() == Kind::list ? widest_kind(item.list()) : item.kind());
  return widest;
}

template <class T> Tensor from_scalars(const std::vector<Scalar>& values, const Dims& sizes, const TensorOptions& options) {
  const auto converted = std::make_unique<T[]>(values.size() + 1);
  for (std::size_t i = 0; i < values.size(); ++i) converted[i] = values[i].as<T>();
  TensorOptions resolved = options;
  resolved.dtype = options.dtype.value_or(dtype_of<T>);
  return detail::from_host(converted.get(), static_cast<std::int64_t>(values.size()), dtype_of<T>, sizes, resolved);
}

}  // namespace

Tensor detail::from_nested(std::initializer_list<Nested> list, const TensorOptions& options) {
  const std::vector<Nested> root(list);
  Dims sizes;
  for (const std::vector<Nested>* level = &root;;) {
    sizes.push_back(static_cast<std::int64_t>(level->size()));
    if (level->empty() || level->front().kind() != Nested::Kind::list) break;
    level = &level->front().list();
  }
  std::vector<Scalar> values;
  collect(root, sizes, 0, values);
  const Nested::Kind kind = widest_kind(root);
  const DType natural = kind == Nested::Kind::boolean ? kBool : kind == Nested::Kind::integer ? kInt64 : kFloat32;
  switch (options.dtype.value_or(natural)) {
    case DType::float64: return from_scalars<double>(values, sizes, options);
    case DType::boolean: return from_scalars<bool>(values, sizes, options);
    case DType::int32:
    case DType::int64:
    case DType::uint8: return from_scalars<std::int64_t>(values, sizes, options);
    default: return from_scalars<float>(values, sizes, options);
  }
}

Tensor detail::from_host(const void* data, std::int64_t count, DType dtype, const Dims& sizes, const TensorOptions& options) {
  check_sizes("from_span", sizes, dtype);
  TL_CHECK(count == sizes.product(), ShapeError, "from_span", count, " values do not fill shape ", sizes, " of ", sizes.product(),
           " elements");
  Tensor out = make_tensor(sizes, dtype, resolve_device("from_span", options));
  if (count > 0) copy_bytes(out.raw().data, out.device(), data, cpu_device(), static_cast<std::size_t>(out.nbytes()), "from_span");
  if (options.dtype && *options.dtype != dtype) {
    Tensor converted = make_tensor(sizes, *options.dtype, out.device());
    TL_CALL((OpPlace{"Cast", out.device()}), copy, converted.raw(), out.raw());
    out = converted;
  }
  return finish(out, options);
}

Tensor empty(const Dims& sizes, const TensorOptions& options) { return finish(make("Empty", sizes, kFloat32, options), options); }
Tensor empty_like(const Tensor& like, const TensorOptions& options) { return empty(like.sizes(), options_like(like, options)); }

Tensor full(const Dims& sizes, Scalar value, const TensorOptions& options) {
  return filled("Fill", sizes, value, value.is_integer ? kInt64 : kFloat32, options);
}
Tensor zeros(const Dims& sizes, const TensorOptions& options) { return filled("Zeros", sizes, 0, kFloat32, options); }
Tensor ones(const Dims& sizes, const TensorOptions& options) { return filled("Ones", sizes, 1, kFloat32, options); }
Tensor zeros_like(const Tensor& like, const TensorOptions& options) { return zeros(like.sizes(), options_like(like, options)); }
Tensor ones_like(const Tensor& like, const TensorOptions& options) { return ones(like.sizes(), options_like(like, options)); }
Tensor full_like(const Tensor& like, Scalar value, const TensorOptions& options) {
  return full(like.sizes(), value, options_like(like, options));
}
Tensor scalar(Scalar value, const TensorOptions& options) { return full({}, value, options); }

Tensor arange(Scalar start, Scalar stop, Scalar step, const TensorOptions& options) {
  const bool integers = start.is_integer && stop.is_integer && step.is_integer;
  const double length = (stop.real - start.real) / step.real;
  TL_CHECK(step.real != 0, ValueError, "arange", "step 0 never reaches ", stop.real);
  TL_CHECK(std::abs(length) < 9e18 || !std::isfinite(length), ShapeError, "arange", "from ", start.real, " to ", stop.real, " in steps of ",
           step.real, " there are more numbers than can be counted");
  TL_CHECK(std::isfinite(length), ValueError, "arange", "start ", start.real, ", stop ", stop.real, " and step ", step.real,
           " must be finite");
  TL_CHECK(length >= 0, ValueError, "arange", "step ", step.real, " leads from ", start.real, " away from ", stop.real);
  const std::int64_t span = stop.integer - start.integer;
  const std::int64_t count = integers ? span / step.integer + (span % step.integer != 0) : static_cast<std::int64_t>(std::ceil(length));
  Tensor out = make("Range", {count}, integers ? kInt64 : kFloat32, options);
  TL_CALL((detail::OpPlace{"Range", out.device()}), arange, out.raw(), start, step);
  return finish(out, options);
}

Tensor linspace(double start, double stop, std::int64_t count, const TensorOptions& options) {
  TL_CHECK(count >= 0, ValueError, "linspace", "count must not be negative, it is ", count);
  const Tensor values = make("linspace", {count}, kFloat64, {.device = cpu_device()});
  double* const out = values.data<double>();
  const double step = count > 1 ? (stop - start) / static_cast<double>(count - 1) : 0;
  // From both ends, so that the last value is exactly `stop` and the sequence is symmetric.
  for (std::int64_t i = 0; i < count; ++i)
    out[i] = count == 1 || i < count / 2 ? start + step * static_cast<double>(i) : stop - step * static_cast<double>(count - 1 - i);
  TensorOptions resolved = options;
  resolved.dtype = options.dtype.value_or(kFloat32);
  return detail::from_host(out, count, kFloat64, {count}, resolved);
}

Tensor eye(std::int64_t rows, std::optional<std::int64_t> columns, const TensorOptions& options) {
  const std::int64_t n = columns.value_or(rows);
  Tensor out = zeros({rows, n}, {.dtype = options.dtype, .device = options.device});
  const Tensor diagonal = detail::make_view(out, {std::min(rows, n)}, {n + 1});
  TL_CALL((detail::OpPlace{"Eye", out.device()}), fill, diagonal.raw(), 1);
  return finish(out, options);
}

Tensor rand(const Dims& sizes, const TensorOptions& options) {
  return drawn("RandomUniform", sizes, RandomKind::uniform, 0, 1, kFloat32, options);
}
Tensor randn(const Dims& sizes, const TensorOptions& options) {
  return drawn("RandomStandardNormal", sizes, RandomKind::normal, 0, 1, kFloat32, options);
}

Tensor randint(std::int64_t low, std::int64_t high, const Dims& sizes, const TensorOptions& options) {
  TL_CHECK(low < high, ValueError, "randint", "the range [", low, ", ", high, ") is empty");
  constexpr std::int64_t kExact = std::int64_t{1} << 53;  // the kernel takes the bounds as float64
  TL_CHECK(low >= -kExact && high <= kExact, ValueError, "randint", "the range [", low, ", ", high, ") must lie within -2^53 and 2^53");
  const DType dtype = options.dtype.value_or(kInt64);
  const std::int64_t top = dtype == kBool ? 1 : dtype == kUInt8 ? 255 : dtype == kInt32 ? std::numeric_limits<std::int32_t>::max() : high;
  const std::int64_t bottom = dtype == kBool || dtype == kUInt8 ? 0 : dtype == kInt32 ? std::numeric_limits<std::int32_t>::min() : low;
  TL_CHECK(low >= bottom && high - 1 <= top, ValueError, "randint", "the range [", low, ", ", high, ") does not fit into ", dtype,
           "; choose a wider dtype");
  return drawn("RandomUniformInt", sizes, RandomKind::integers, static_cast<double>(low), static_cast<double>(high), kInt64, options);
}

Tensor randperm(std::int64_t count, const TensorOptions& options) {
  TL_CHECK(count >= 0, ValueError, "randperm", "count must not be negative, it is ", count);
  const Tensor values = make("randperm", {count}, kInt64, {.device = cpu_device()});
  const std::span<std::int64_t> order(values.data<std::int64_t>(), static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  detail::shuffle(order, next_philox_key());
  TensorOptions resolved = options;
  resolved.dtype = options.dtype.value_or(kInt64);
  return detail::from_host(order.data(), count, kInt64, {count}, resolved);
}

namespace {
struct ForeignMemory {
  std::function<void(void*)> deleter;
  void* data;
  static void release(void* context) {
    const std::unique_ptr<ForeignMemory> self(static_cast<ForeignMemory*>(context));
    if (self->deleter) self->deleter(self->data);
  }
};
}  // namespace

Tensor from_blob(void* data, const Dims& sizes, DType dtype, std::function<void(void*)> deleter, const Dims& strides) {
  check_sizes("from_blob", sizes, dtype);
  TL_CHECK(data || sizes.product() == 0, ValueError, "from_blob", "a null pointer for a tensor of shape ", sizes);
  TL_CHECK(strides.empty() || strides.size() == sizes.size(), ShapeError, "from_blob", "strides ", strides, " do not match sizes ", sizes);
  auto impl = detail::Ref<detail::TensorImpl>(new detail::TensorImpl);
  impl->storage = detail::Ref<detail::Storage>(new detail::Storage);
  impl->storage->data = data;
  impl->storage->bytes = static_cast<std::size_t>(sizes.product() * size_of(dtype));
  impl->storage->deleter_context = new ForeignMemory{std::move(deleter), data};
  impl->storage->deleter = &ForeignMemory::release;
  impl->view = View(data, dtype, cpu_device(), sizes, strides.empty() ? contiguous_strides(sizes) : strides);
  return Tensor(std::move(impl));
}

}  // namespace tensorlite
