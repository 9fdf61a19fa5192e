// Out-of-line L2: storage, views, access to bytes, conversions and in-place copies of Tensor.
#include <tensorlite/autograd.hpp>

#include <cstring>

namespace tensorlite {
namespace detail {

Ref<Storage> make_storage(Device device, std::size_t bytes) {
  void* data = allocate(device, bytes);
  auto* storage = new Storage;
  storage->data = data;
  storage->bytes = bytes;
  storage->device = device;
  return Ref<Storage>(storage);
}

void destroy(Storage* storage) {
  if (storage->deleter) storage->deleter(storage->deleter_context);
  else if (storage->data) release(storage->device, storage->data);
  delete storage;
}

void destroy(TensorImpl* impl) { delete impl; }

Tensor make_tensor(const Dims& sizes, DType dtype, Device device) {
  check_count("Tensor", sizes);
  auto impl = Ref<TensorImpl>(new TensorImpl);
  impl->storage = make_storage(device, static_cast<std::size_t>(sizes.product() * size_of(dtype)));
  View& view = impl->view;  // filled in place: a View is large
  view.data = impl->storage->data;
  view.dtype = dtype;
  view.device = device;
  view.present = true;
  view.sizes = sizes;
  view.strides = sizes;  // and then contiguous, written in place: a copy of entries just written would wait for them
  std::int64_t stride = 1;
  for (int i = sizes.size() - 1; i >= 0; --i) {
    view.strides[i] = stride;
    stride *= sizes[i] > 1 ? sizes[i] : 1;
  }
  return Tensor(std::move(impl));
}

Tensor make_view(const Tensor& base, const Dims& sizes, const Dims& strides, std::int64_t offset) {
  const View& from = base.raw();
  auto impl = Ref<TensorImpl>(new TensorImpl);
  impl->storage = base.impl()->storage;
  // A view without elements may stand past the end of its storage: its pointer stays the base's.
  void* data = sizes.product() == 0 ? from.data : static_cast<std::byte*>(from.data) + offset * size_of(from.dtype);
  View& view = impl->view;
  view.data = data;
  view.dtype = from.dtype;
  view.device = from.device;
  view.present = true;
  view.sizes = sizes;
  view.strides = strides;
  impl->is_view = true;
  return Tensor(std::move(impl));
}

namespace {
Tensor dense_copy(const char* op, const Tensor& x) {
  Tensor out = make_tensor(x.sizes(), x.dtype(), x.device());
  TL_CALL((OpPlace{op, x.device()}), copy, out.raw(), x.raw());
  return out;
}

Tensor dense(const Tensor& x) { return x.is_contiguous() ? x : dense_copy("Copy", x); }

/// The elements, row-major, on another device. Not recorded, not logged as an op.
Tensor copy_to_device(const char* op, const Tensor& x, Device device) {
  const Tensor from = dense(x);
  Tensor out = make_tensor(from.sizes(), from.dtype(), device);
  if (out.numel() > 0) copy_bytes(out.raw().data, device, from.raw().data, from.device(), static_cast<std::size_t>(out.nbytes()), op);
  return out;
}

Gradients pass_through(const BackwardContext&, const Tensor& g) { return {g}; }
}  // namespace

Device place_inputs(const char* op, const Tensor* const* inputs, Tensor* copies, int count) {
  constexpr int kMaxInputs = 16;
  Device devices[kMaxInputs];
  TL_CHECK(count <= kMaxInputs, ValueError, op, "at most ", kMaxInputs, " placed inputs");
  for (int i = 0; i < count; ++i) {
    TL_CHECK(inputs[i]->defined(), ValueError, op, "input ", i, " is an undefined tensor");
    devices[i] = inputs[i]->raw().device;
  }
  const Device device = place_op(op, devices, count);
  for (int i = 0; i < count; ++i) {
    if (devices[i] == device) continue;
    record_copy(op, i, devices[i], device, inputs[i]->nbytes());
    copies[i] = copy_to_device(op, *inputs[i], device);
  }
  return device;
}

View broadcast_view(const View& view, const Dims& sizes) {
  if (view.sizes == sizes) return view;
  View out = view;
  out.sizes = sizes;
  out.strides = Dims::filled(sizes.size(), 0);
  const int shift = sizes.size() - view.dim();
  for (int i = 0; i < view.dim(); ++i) out.strides[i + shift] = view.sizes[i] == 1 && sizes[i + shift] != 1 ? 0 : view.strides[i];
  return out;
}

Dims broadcast_sizes(const char* op, const Dims& a, const Dims& b) {
  if (a == b) return a;
  const Dims& longer = a.size() >= b.size() ? a : b;
  const Dims& shorter = a.size() >= b.size() ? b : a;
  Dims out = longer;
  const int shift = longer.size() - shorter.size();
  for (int i = 0; i < shorter.size(); ++i) {
    const std::int64_t x = longer[i + shift], y = shorter[i];
    TL_CHECK(x == y || x == 1 || y == 1, ShapeError, op, "shapes ", a, " and ", b, " cannot be broadcast together: sizes ", x, " and ", y,
             " differ and neither is 1");
    out[i + shift] = x == 1 ? y : x;
  }
  return out;
}

}  // namespace detail

// ------------------------------------------------------------------------------------------------------------------- access

void Tensor::throw_undefined() { throw ValueError("Tensor", "the tensor is undefined: it was default-constructed and never assigned"); }

std::int64_t Tensor::size(int axis) const { return sizes()[detail::wrap_axis("size", axis, dim())]; }
std::int64_t Tensor::stride(int axis) const { return strides()[detail::wrap_axis("stride", axis, dim())]; }

void* Tensor::host_data(DType expected) const {
  TL_CHECK(dtype() == expected, DTypeError, "data", "asked for ", expected, " elements of a ", dtype(), " tensor; convert with to() first");
  TL_CHECK(device().is_cpu(), DeviceMismatchError, "data", "the tensor is on ", device(), ", not in host memory; copy it with cpu() first");
  return raw().data;
}

void Tensor::copy_to_host(void* out, DType expected) const {
  TL_CHECK(dtype() == expected, DTypeError, "to_vector", "asked for ", expected, " elements of a ", dtype(),
           " tensor; convert with to() first");
  if (numel() == 0) return;
  const Tensor flat = detail::dense(*this);
  detail::copy_bytes(out, cpu_device(), flat.raw().data, flat.device(), static_cast<std::size_t>(flat.nbytes()), "to_vector");
}

namespace {
template <class T> T read_as(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}
}  // namespace

Scalar Tensor::item_scalar() const {
  TL_CHECK(numel() == 1, ShapeError, "item", "needs exactly one element, the tensor has shape ", sizes());
  alignas(8) std::byte bytes[8];
  detail::copy_bytes(bytes, cpu_device(), raw().data, device(), static_cast<std::size_t>(size_of(dtype())), "item");
  switch (dtype()) {
    case DType::float32: return read_as<float>(bytes);
    case DType::float64: return read_as<double>(bytes);
    case DType::float16: return static_cast<float>(read_as<float16>(bytes));
    case DType::bfloat16: return static_cast<float>(read_as<bfloat16>(bytes));
    case DType::int32: return read_as<std::int32_t>(bytes);
    case DType::int64: return read_as<std::int64_t>(bytes);
    case DType::uint8: return read_as<std::uint8_t>(bytes);
    case DType::boolean: return read_as<std::uint8_t>(bytes) != 0;
  }
  return {};
}

// -------------------------------------------------------------------------------------------------------------- conversions

Tensor Tensor::to(DType dtype) const {
  if (raw().dtype == dtype) return *this;
  const detail::Placed<1> in("Cast", *this);
  Tensor out = detail::make_tensor(sizes(), dtype, in.device);
  TL_CALL(in, copy, out.raw(), in.view(0));
  if (!is_floating(dtype) || !is_floating(raw().dtype)) return out;
  return detail::record("Cast", out, {*this}, {}, &detail::pass_through);
}

Tensor Tensor::to(Device device) const {
  if (raw().device == device) return *this;
  detail::require_device("to", device);
  return detail::record("Copy", detail::copy_to_device("to", *this, device), {*this}, {}, &detail::pass_through);
}

Tensor Tensor::to(std::string_view device) const {
  const DeviceSpec spec = DeviceSpec::parse(device);
  TL_CHECK(spec.type && !spec.any_index, ValueError, "to", "the device name '", device,
           "' does not name one device, such as 'CPU:0' or 'GPU:0'");
  return to(detail::device_named("to", device));
}

Tensor Tensor::contiguous() const { return is_contiguous() ? *this : clone(); }

Tensor Tensor::clone() const {
  return detail::record("Identity", detail::dense_copy("Identity", *this), {*this}, {}, &detail::pass_through);
}

Tensor Tensor::detach() const {
  Tensor out = detail::make_view(*this, sizes(), strides());
  out.impl()->is_view = impl_->is_view;
  return out;
}

// ------------------------------------------------------------------------------------------------------------------ in place

Tensor& Tensor::copy_(const Tensor& source) {
  TL_CHECK(source.defined(), ValueError, "copy_", "the source is an undefined tensor");
  TL_CHECK(detail::broadcast_sizes("copy_", sizes(), source.sizes()) == sizes(), ShapeError, "copy_", "a source of shape ", source.sizes(),
           " does not fit into shape ", sizes());
  const detail::TensorRef others[] = {source};
  const bool recorded = detail::records_inplace("copy_", *this, others);
  Tensor from = source.device() == device() ? source.detach() : detail::copy_to_device("copy_", source, device());
  // Overlap: elements would be read after they were overwritten, unless both views are the same.
  const bool same = from.raw().data == raw().data && from.sizes() == sizes() && from.strides() == strides();
  if (from.shares_storage(*this) && !same) from = detail::dense_copy("Copy", from);
  Tensor target = *this;
  if (recorded) target = detail::make_tensor(sizes(), dtype(), device());
  TL_CALL((detail::OpPlace{"Copy", device()}), copy, target.raw(), detail::broadcast_view(from.raw(), sizes()));
  if (!recorded) {
    detail::bump_version(*this);
    return *this;
  }
  target = detail::record("Copy", target, {source}, {}, &detail::pass_through);
  detail::assign_recorded("copy_", *this, target);
  return *this;
}

Tensor& Tensor::fill_(Scalar value) {
  if (detail::records_inplace("fill_", *this, {})) {
    detail::assign_recorded("fill_", *this, full_like(*this, value));
    return *this;
  }
  TL_CALL((detail::OpPlace{"Fill", device()}), fill, raw(), value);
  detail::bump_version(*this);
  return *this;
}

}  // namespace tensorlite
