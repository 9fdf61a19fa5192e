// L2: Tensor, creation, access to its bytes. The operations on it are in ops/*.hpp, gradients in autograd.hpp.
#pragma once

#include <tensorlite/device.hpp>

#include <atomic>
#include <iosfwd>
#include <memory>

namespace tensorlite {

class Tensor;

/// Where and as what a creation function makes its tensor: `zeros({2, 3}, {.dtype = kFloat64, .device = cpu_device()})`.
struct TensorOptions {
  std::optional<DType> dtype = {};    ///< default float32 (arange, full: from the value)
  std::optional<Device> device = {};  ///< default: the scope's device, else GPU:0 when there is a usable one, else CPU:0
  bool requires_grad = false;
};

namespace detail {

/// Reference-counted pointer to an object that counts its own owners (`refs`) and is destroyed by `destroy(T*)`.
template <class T> class Ref {
 public:
  Ref() = default;
  explicit Ref(T* adopted) : p_(adopted) {}
  Ref(const Ref& other) : p_(other.p_) {
    if (p_) p_->refs.fetch_add(1, std::memory_order_relaxed);
  }
  Ref(Ref&& other) noexcept : p_(std::exchange(other.p_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(p_, other.p_);
    return *this;
  }
  ~Ref() {
    if (p_ && p_->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy(p_);
  }
  T* get() const { return p_; }
  T* operator->() const { return p_; }
  T& operator*() const { return *p_; }
  explicit operator bool() const { return p_ != nullptr; }
  int use_count() const { return p_ ? p_->refs.load(std::memory_order_relaxed) : 0; }

 private:
  T* p_ = nullptr;
};

/// The bytes of one or more tensors, on one device.
class Storage {
 public:
  std::atomic<int> refs{1};
  void* data = nullptr;
  std::size_t bytes = 0;
  Device device;
  std::atomic<std::uint32_t> version{0};     ///< counts in-place writes; saved tensors remember it
  std::uint32_t graph_version = 0;           ///< counts in-place writes that were recorded for backward
  void (*deleter)(void* context) = nullptr;  ///< foreign memory; null: from the device's pool
  void* deleter_context = nullptr;
};
TL_API void destroy(Storage* storage);
/// New memory of the device's pool, uninitialized. Throws OutOfMemoryError.
TL_API Ref<Storage> make_storage(Device device, std::size_t bytes);

class Node;
TL_API void destroy(Node* node);

/// What autograd knows of a tensor; absent for most.
struct AutogradMeta {
  bool requires_grad = false;       ///< a leaf that collects a gradient
  Ref<Node> node;                   ///< that computed this tensor; null for a leaf
  std::uint32_t output = 0;         ///< which of the node's outputs
  std::uint32_t graph_version = 0;  ///< of the storage, when this tensor was recorded
  std::shared_ptr<Tensor> grad;     ///< shared with the node when retained
};

class TensorImpl {
 public:
  std::atomic<int> refs{1};
  Ref<Storage> storage;
  View view;
  bool is_view = false;  ///< made by a view op: shares its storage with a base
  std::unique_ptr<AutogradMeta> meta;
};
TL_API void destroy(TensorImpl* impl);

/// One element of nested braces: a number or a list of such.
class Nested {
 public:
  template <class T>
  requires(std::is_arithmetic_v<T>) Nested(T value)
      : value_(value),
        kind_(std::is_same_v<T, bool> ? Kind::boolean
              : std::is_integral_v<T> ? Kind::integer
                                      : Kind::real) {}
  Nested(std::initializer_list<Nested> list) : list_(list), kind_(Kind::list) {}

  enum class Kind : std::uint8_t { boolean, integer, real, list };
  const Scalar& value() const { return value_; }
  const std::vector<Nested>& list() const { return list_; }
  Kind kind() const { return kind_; }

 private:
  Scalar value_;
  std::vector<Nested> list_;
  Kind kind_;
};
TL_API Tensor from_nested(std::initializer_list<Nested> list, const TensorOptions& options);
}  // namespace detail

struct BackwardOptions {
  bool retain_graph = false;
  bool create_graph = false;  ///< record the gradients themselves, for double backward (implies retain_graph)
};

/// A strided view of elements of one dtype on one device; copies share the elements (as in PyTorch and NumPy's views). A default Tensor is
/// undefined. Images are NHWC, convolution kernels OHWI.
class TL_API Tensor {
 public:
  Tensor() = default;
  /// Nested braces: Tensor{{1.f, 2.f}, {3.f, 4.f}}. Any float or double in them: float32; integers only: int64; bools only: bool.
  /// Throws ShapeError when the lists are ragged.
  Tensor(std::initializer_list<detail::Nested> list) : Tensor(detail::from_nested(list, {})) {}
  Tensor(std::initializer_list<detail::Nested> list, const TensorOptions& options) : Tensor(detail::from_nested(list, options)) {}
  explicit Tensor(detail::Ref<detail::TensorImpl> impl) : impl_(std::move(impl)) {}

  bool defined() const { return static_cast<bool>(impl_); }
  explicit operator bool() const = delete;

  const Dims& sizes() const { return raw().sizes; }
  const Dims& strides() const { return raw().strides; }  ///< in elements
  std::int64_t size(int axis) const;                     ///< a negative axis counts from the end; throws IndexError
  std::int64_t stride(int axis) const;
  int dim() const { return raw().dim(); }
  std::int64_t numel() const { return raw().numel(); }
  std::int64_t nbytes() const { return raw().nbytes(); }  ///< of its elements, gaps not counted
  DType dtype() const { return raw().dtype; }
  Device device() const { return raw().device; }
  bool is_contiguous() const { return raw().is_contiguous(); }
  /// What a kernel sees. Throws ValueError when undefined.
  const View& raw() const {
    if (!impl_) [[unlikely]]
      throw_undefined();
    return impl_->view;
  }
  detail::TensorImpl* impl() const { return impl_.get(); }
  const detail::Ref<detail::TensorImpl>& ref() const { return impl_; }
  /// True when both share one storage (not necessarily the same elements).
  bool shares_storage(const Tensor& other) const { return impl_ && other.impl_ && impl_->storage.get() == other.impl_->storage.get(); }

  /// Host pointer to the first element. Throws DTypeError when T is another type, DeviceMismatchError for a tensor on a GPU. Writing
  /// through it is not seen by autograd's version check.
  template <class T> T* data() const { return static_cast<T*>(host_data(dtype_of<T>)); }
  /// The one element, converted to T. Throws ShapeError for another count. Waits for the device.
  template <class T> T item() const {
    const Scalar s = item_scalar();
    return s.as<T>();
  }
  /// All elements in row-major order. Throws DTypeError when T is another type.
  template <class T> std::vector<T> to_vector() const {
    std::vector<T> out(static_cast<std::size_t>(numel()));
    copy_to_host(out.data(), dtype_of<T>);
    return out;
  }
  std::string to_string() const;  ///< in NumPy's style

  // ------------------------------------------------------------------------------------------- copies and conversions (differentiable)
  Tensor to(DType dtype) const;    ///< itself when it has that dtype already
  Tensor to(Device device) const;  ///< itself when it is there already
  Tensor to(std::string_view device) const;
  Tensor cpu() const { return to(cpu_device()); }
  Tensor gpu() const { return to(gpu_device()); }
  Tensor contiguous() const;  ///< itself when row-major already
  Tensor clone() const;       ///< new row-major memory

  // ----------------------------------------------------------------------------------------------------------------------- autograd
  bool requires_grad() const { return impl_ && impl_->meta && (impl_->meta->requires_grad || impl_->meta->node); }
  bool is_leaf() const { return !impl_ || !impl_->meta || !impl_->meta->node; }
  /// Throws DTypeError unless floating, AutogradError on a tensor that an op computed.
  Tensor& requires_grad_(bool enable = true);
  /// The gradient that backward collected; undefined before.
  Tensor grad() const { return impl_ && impl_->meta && impl_->meta->grad ? *impl_->meta->grad : Tensor(); }
  void set_grad(Tensor gradient) const;  ///< an undefined tensor clears it
  void retain_grad() const;              ///< collect the gradient of a tensor that an op computed, too
  /// The same elements, not recorded.
  Tensor detach() const;
  /// d(this)/d(leaf), times `gradient` (default 1 for a single element), added to every leaf's grad(). Throws AutogradError.
  void backward(const Tensor& gradient = {}, BackwardOptions options = {}) const;

  // ---------------------------------------------------------------------------------------- in place; `_` as in PyTorch (ops/inplace.hpp)
  Tensor& copy_(const Tensor& source);  ///< broadcasts, converts, crosses devices; overlapping memory is right
  Tensor& fill_(Scalar value);
  Tensor& zero_() { return fill_(0); }
  Tensor& add_(const Tensor& other);
  Tensor& sub_(const Tensor& other);
  Tensor& mul_(const Tensor& other);
  Tensor& div_(const Tensor& other);
  Tensor& add_(Scalar other);
  Tensor& sub_(Scalar other);
  Tensor& mul_(Scalar other);
  Tensor& div_(Scalar other);
  Tensor& clamp_(double low, double high);
  Tensor& relu_();
  Tensor& masked_fill_(const Tensor& mask, Scalar value);
  Tensor& uniform_(double low = 0, double high = 1);
  Tensor& normal_(double mean = 0, double deviation = 1);

  // --------------------------------------------------------------------- views and shape; the functions of the same names say more
  // (ops/shape.hpp)
  Tensor slice(int axis, std::int64_t begin, std::optional<std::int64_t> end = {}, std::int64_t step = 1) const;
  Tensor select(int axis, std::int64_t index) const;
  Tensor operator[](std::int64_t index) const { return select(0, index); }
  Tensor narrow(int axis, std::int64_t begin, std::int64_t length) const;
  Tensor permute(const Dims& axes) const;
  Tensor transpose(int axis0, int axis1) const;
  Tensor t() const;
  Tensor reshape(const Dims& sizes) const;
  Tensor view(const Dims& sizes) const;
  Tensor flatten(int begin = 0, int end = -1) const;
  Tensor expand(const Dims& sizes) const;
  Tensor squeeze() const;
  Tensor squeeze(int axis) const;
  Tensor unsqueeze(int axis) const;

  // ------------------------------------------------------------------------------------------------------ the most used reductions
  // (ops/reduce.hpp)
  Tensor sum() const;
  Tensor mean() const;
  Tensor max() const;
  Tensor min() const;
  Tensor argmax(int axis) const;

 private:
  [[noreturn]] static void throw_undefined();
  void* host_data(DType expected) const;
  Scalar item_scalar() const;
  void copy_to_host(void* out, DType expected) const;

  detail::Ref<detail::TensorImpl> impl_;
};

/// to_string().
TL_API std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

// ----------------------------------------------------------------------------------------------------------------- creation

/// Uninitialized. Throws ShapeError for a negative size or a product that does not fit, OutOfMemoryError.
TL_API Tensor empty(const Dims& sizes, const TensorOptions& options = {});
/// Uninitialized, with the sizes of `like`, and its dtype and device unless `options` says otherwise.
TL_API Tensor empty_like(const Tensor& like, const TensorOptions& options = {});
TL_API Tensor full(const Dims& sizes, Scalar value, const TensorOptions& options = {});  ///< dtype from the value: int64, float32
TL_API Tensor zeros(const Dims& sizes, const TensorOptions& options = {});
TL_API Tensor ones(const Dims& sizes, const TensorOptions& options = {});
TL_API Tensor zeros_like(const Tensor& like, const TensorOptions& options = {});
TL_API Tensor ones_like(const Tensor& like, const TensorOptions& options = {});
TL_API Tensor full_like(const Tensor& like, Scalar value, const TensorOptions& options = {});
/// 0-d.
TL_API Tensor scalar(Scalar value, const TensorOptions& options = {});
/// start, start + step, ... before stop. Throws ValueError for step 0 or one of the wrong sign.
TL_API Tensor arange(Scalar start, Scalar stop, Scalar step = 1, const TensorOptions& options = {});
inline Tensor arange(Scalar stop) { return arange(0, stop); }
/// `count` values from start to stop, both included.
TL_API Tensor linspace(double start, double stop, std::int64_t count, const TensorOptions& options = {});
/// rows x columns with ones on the diagonal.
TL_API Tensor eye(std::int64_t rows, std::optional<std::int64_t> columns = {}, const TensorOptions& options = {});
/// Uniform in [0, 1). The same numbers for a seed on every device and any thread count.
TL_API Tensor rand(const Dims& sizes, const TensorOptions& options = {});
/// Normal, mean 0, deviation 1.
TL_API Tensor randn(const Dims& sizes, const TensorOptions& options = {});
/// Integers in [low, high), int64 unless options say otherwise. Throws ValueError for a range that is empty, beyond +-2^53 or beyond the
/// dtype.
TL_API Tensor randint(std::int64_t low, std::int64_t high, const Dims& sizes, const TensorOptions& options = {});
/// 0 .. count-1 in random order, int64.
TL_API Tensor randperm(std::int64_t count, const TensorOptions& options = {});

/// Foreign host memory, not copied; `deleter` runs when the last tensor on it goes. Strides in elements; default row-major.
/// Throws ValueError for a null pointer with elements.
TL_API Tensor from_blob(void* data, const Dims& sizes, DType dtype, std::function<void(void*)> deleter = {}, const Dims& strides = {});

namespace detail {
TL_API Tensor from_host(const void* data, std::int64_t count, DType dtype, const Dims& sizes, const TensorOptions& options);
}
/// A copy of `values` as a tensor of these sizes. Throws ShapeError when the counts differ.
template <class T> Tensor from_span(std::span<const T> values, const Dims& sizes, const TensorOptions& options = {}) {
  return detail::from_host(values.data(), static_cast<std::int64_t>(values.size()), dtype_of<T>, sizes, options);
}
template <class T> Tensor from_vector(const std::vector<T>& values, const Dims& sizes, const TensorOptions& options = {}) {
  return from_span(std::span<const T>(values), sizes, options);
}
/// 1-D.
template <class T> Tensor from_vector(const std::vector<T>& values, const TensorOptions& options = {}) {
  return from_vector(values, {static_cast<std::int64_t>(values.size())}, options);
}

// ------------------------------------------------------------------------------------------------ what ops are made of (detail)
namespace detail {

/// An axis in [-rank, rank) as one in [0, rank). Throws IndexError.
inline int wrap_axis(const char* op, std::int64_t axis, int rank) {
  const int limit = rank == 0 ? 1 : rank;
  TL_CHECK(axis >= -limit && axis < limit, IndexError, op, "axis ", axis, " is out of range for a tensor of ", rank, " dimensions");
  return static_cast<int>(axis < 0 ? axis + limit : axis);
}

/// Throws ShapeError for sizes whose elements or bytes 64 bits cannot count.
inline void check_count(const char* op, const Dims& sizes) {
  double count = 1;
  for (std::int64_t n : sizes) count *= static_cast<double>(n);
  TL_CHECK(count < 1e18 && count > -1e18, ShapeError, op, "shape ", sizes, " has more elements than can be counted; use smaller sizes");
}

/// A tensor on the storage of `base`, `offset` elements after its first. Not recorded.
TL_API Tensor make_view(const Tensor& base, const Dims& sizes, const Dims& strides, std::int64_t offset = 0);

/// An empty tensor for an op's result: sizes are known to be good, no options to resolve.
TL_API Tensor make_tensor(const Dims& sizes, DType dtype, Device device);

/// The inputs of one op, on the device it runs on: those that live elsewhere are copied there, counted and logged.
TL_API Device place_inputs(const char* op, const Tensor* const* inputs, Tensor* copies, int count);

template <int N> class Placed : public OpPlace {
 public:
  template <class... T>
  requires(sizeof...(T) == N) explicit Placed(const char* op_name, const T&... inputs) : inputs_{&inputs...} {
    op = op_name;
    device = place_inputs(op_name, inputs_, copies_, N);
  }
  const Tensor& operator[](int i) const { return copies_[i].defined() ? copies_[i] : *inputs_[i]; }
  const View& view(int i) const { return (*this)[i].raw(); }

 private:
  const Tensor* inputs_[N];
  Tensor copies_[N];
};

/// The view seen with these larger sizes (stride 0 on broadcast axes). `sizes` is known to be compatible.
TL_API View broadcast_view(const View& view, const Dims& sizes);
/// NumPy's rule; 0 beats 1. Throws ShapeError naming both.
TL_API Dims broadcast_sizes(const char* op, const Dims& a, const Dims& b);
/// Called after every in-place write.
inline void bump_version(const Tensor& tensor) { tensor.impl()->storage->version.fetch_add(1, std::memory_order_relaxed); }
}  // namespace detail

}  // namespace tensorlite
