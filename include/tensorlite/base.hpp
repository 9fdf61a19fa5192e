// L0: version, DType, Device, Dims, View, the error types and TL_CHECK. Shared by g++ and nvcc; standard headers only.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#define TENSORLITE_VERSION_MAJOR 0
#define TENSORLITE_VERSION_MINOR 1
#define TENSORLITE_VERSION_PATCH 0
#define TENSORLITE_VERSION "0.1.0"

#if defined(_WIN32)
#if defined(TENSORLITE_STATIC)
#define TL_API
#elif defined(TENSORLITE_BUILDING)
#define TL_API __declspec(dllexport)
#else
#define TL_API __declspec(dllimport)
#endif
#define TL_TYPE_API
#else
#define TL_API __attribute__((visibility("default")))
#define TL_TYPE_API __attribute__((visibility("default")))
#endif

#if defined(__CUDACC__)
#define TL_HOST_DEVICE __host__ __device__
#else
#define TL_HOST_DEVICE
#endif

namespace tensorlite {

inline constexpr int kMaxDims = 8;

// ---------------------------------------------------------------------------------------------------------------- half types

/// IEEE 754 binary16, a storage type: arithmetic converts to float. Rounds to nearest even.
struct float16 {
  std::uint16_t bits = 0;
  float16() = default;
  TL_HOST_DEVICE explicit float16(float value) : bits(encode(value)) {}
  TL_HOST_DEVICE operator float() const { return decode(bits); }

  TL_HOST_DEVICE static std::uint16_t encode(float value) {
    const auto f = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (f >> 16) & 0x8000u, magnitude = f & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
    if (magnitude >= 0x38800000u) {
      const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
      return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
    }
    // Subnormal: adding 0.5 aligns the mantissa so that the hardware does the rounding.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
  }
  TL_HOST_DEVICE static float decode(std::uint16_t half) {
    const std::uint32_t sign = (half & 0x8000u) << 16, exponent = (half >> 10) & 0x1fu, mantissa = half & 0x3ffu;
    if (exponent == 0x1fu) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
    if (exponent == 0) {
      const float tiny = static_cast<float>(mantissa) * 5.9604644775390625e-8f;
      return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(tiny));
    }
    return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  }
};

/// The upper half of a float32, a storage type: arithmetic converts to float. Rounds to nearest even.
struct bfloat16 {
  std::uint16_t bits = 0;
  bfloat16() = default;
  TL_HOST_DEVICE explicit bfloat16(float value) : bits(encode(value)) {}
  TL_HOST_DEVICE operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

  TL_HOST_DEVICE static std::uint16_t encode(float value) {
    const auto f = std::bit_cast<std::uint32_t>(value);
    if ((f & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((f >> 16) | 0x40u);
    return static_cast<std::uint16_t>((f + 0x7fffu + ((f >> 16) & 1u)) >> 16);
  }
};

// --------------------------------------------------------------------------------------------------------------------- DType

enum class DType : std::uint8_t { float32, float64, float16, bfloat16, int32, int64, uint8, boolean };
inline constexpr int kNumDTypes = 8;
inline constexpr DType kFloat32 = DType::float32, kFloat64 = DType::float64, kFloat16 = DType::float16, kBFloat16 = DType::bfloat16,
                       kInt32 = DType::int32, kInt64 = DType::int64, kUInt8 = DType::uint8, kBool = DType::boolean;

/// Bytes of one element.
TL_HOST_DEVICE constexpr std::int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::float64:
    case DType::int64: return 8;
    case DType::float32:
    case DType::int32: return 4;
    case DType::float16:
    case DType::bfloat16: return 2;
    default: return 1;
  }
}
TL_HOST_DEVICE constexpr bool is_floating(DType dtype) { return dtype <= DType::bfloat16; }
/// float16 and bfloat16: computed in float32, stored in 16 bits.
TL_HOST_DEVICE constexpr bool is_half(DType dtype) { return dtype == DType::float16 || dtype == DType::bfloat16; }

/// NumPy's name of the type ("float32", "bool").
constexpr const char* name_of(DType dtype) {
  constexpr const char* names[] = {"float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "bool"};
  return names[static_cast<int>(dtype)];
}

template <class T> struct DTypeOf;
template <> struct DTypeOf<float> { static constexpr DType value = DType::float32; };
template <> struct DTypeOf<double> { static constexpr DType value = DType::float64; };
template <> struct DTypeOf<float16> { static constexpr DType value = DType::float16; };
template <> struct DTypeOf<bfloat16> { static constexpr DType value = DType::bfloat16; };
template <> struct DTypeOf<std::int32_t> { static constexpr DType value = DType::int32; };
template <> struct DTypeOf<std::int64_t> { static constexpr DType value = DType::int64; };
template <> struct DTypeOf<std::uint8_t> { static constexpr DType value = DType::uint8; };
template <> struct DTypeOf<bool> { static constexpr DType value = DType::boolean; };
template <class T> inline constexpr DType dtype_of = DTypeOf<std::remove_cv_t<T>>::value;

/// The DType both operands are converted to, as in NumPy: the smallest type that holds every value of both (int64 + float32 is
/// float64). bfloat16 stands beside float16; the two together give float32.
constexpr DType promote(DType a, DType b) {
  if (a == b) return a;
  if (is_floating(a) && is_floating(b)) {
    if (a == kFloat64 || b == kFloat64) return kFloat64;
    return kFloat32;
  }
  if (is_floating(b)) std::swap(a, b);
  if (is_floating(a)) {  // b is an integer or bool
    if (b == kBool || b == kUInt8) return a;
    return kFloat64;
  }
  if (a == kBool) return b;
  if (b == kBool) return a;
  if (a == kInt64 || b == kInt64) return kInt64;
  return kInt32;
}

// -------------------------------------------------------------------------------------------------------------------- Device

enum class DeviceType : std::uint8_t { cpu, gpu };

/// One logical device. Text forms and their parser are in device.hpp.
struct Device {
  DeviceType type = DeviceType::cpu;
  std::int16_t index = 0;
  friend constexpr bool operator==(Device, Device) = default;
  constexpr bool is_cpu() const { return type == DeviceType::cpu; }
  constexpr bool is_gpu() const { return type == DeviceType::gpu; }
};
constexpr Device cpu_device(int index = 0) { return {DeviceType::cpu, static_cast<std::int16_t>(index)}; }
constexpr Device gpu_device(int index = 0) { return {DeviceType::gpu, static_cast<std::int16_t>(index)}; }

// -------------------------------------------------------------------------------------------------------------------- errors

/// Root of every exception of the library. what() starts with the name of the op or call: "matmul: ...".
class TL_TYPE_API Error : public std::runtime_error {
 public:
  Error(std::string_view op, const std::string& text) : std::runtime_error(std::string(op) + ": " + text) {}
};
#define TL_DEFINE_ERROR(Name, Base)      \
  class TL_TYPE_API Name : public Base { \
   public:                               \
    using Base::Base;                    \
  }
TL_DEFINE_ERROR(ValueError, Error);  ///< A caller's mistake; nothing has changed.
TL_DEFINE_ERROR(ShapeError, ValueError);
TL_DEFINE_ERROR(DTypeError, ValueError);
TL_DEFINE_ERROR(IndexError, ValueError);
TL_DEFINE_ERROR(DeviceError, Error);
TL_DEFINE_ERROR(DeviceUnavailableError, DeviceError);
TL_DEFINE_ERROR(DeviceMismatchError, DeviceError);
TL_DEFINE_ERROR(AlreadyInitializedError, DeviceError);
TL_DEFINE_ERROR(BackendError, DeviceError);
TL_DEFINE_ERROR(OutOfMemoryError, DeviceError);
TL_DEFINE_ERROR(AutogradError, Error);
TL_DEFINE_ERROR(CaptureError, Error);  ///< An op that cannot be part of a captured step (capture.hpp).

/// A kernel that this device cannot have.
class TL_TYPE_API NotImplementedError : public Error {
 public:
  using Error::Error;
};

/// A file that could not be read or written; path() names it.
class TL_TYPE_API IoError : public Error {
 public:
  IoError(std::string_view op, std::string path, const std::string& text) : Error(op, "'" + path + "': " + text), path_(std::move(path)) {}
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// ---------------------------------------------------------------------------------------------------------------------- Dims

/// Up to 8 sizes, strides or axes, stored in place. Trivially copyable, so kernels and gradients may hold it by value.
class Dims {
 public:
  constexpr Dims() = default;
  constexpr Dims(std::initializer_list<std::int64_t> values) {
    for (auto v : values) push_back(v);
  }
  explicit constexpr Dims(std::span<const std::int64_t> values) {
    for (auto v : values) push_back(v);
  }
  Dims(const std::vector<std::int64_t>& values) {
    for (auto v : values) push_back(v);
  }
  static constexpr Dims filled(int count, std::int64_t value) {
    Dims d;
    for (int i = 0; i < count; ++i) d.push_back(value);
    return d;
  }

  TL_HOST_DEVICE constexpr int size() const { return count_; }
  TL_HOST_DEVICE constexpr bool empty() const { return count_ == 0; }
  TL_HOST_DEVICE constexpr std::int64_t& operator[](int i) { return values_[i]; }
  TL_HOST_DEVICE constexpr std::int64_t operator[](int i) const { return values_[i]; }
  constexpr std::int64_t& back() { return values_[count_ - 1]; }
  constexpr std::int64_t back() const { return values_[count_ - 1]; }
  constexpr const std::int64_t* data() const { return values_; }
  constexpr const std::int64_t* begin() const { return values_; }
  constexpr const std::int64_t* end() const { return values_ + count_; }
  constexpr std::int64_t* begin() { return values_; }
  constexpr std::int64_t* end() { return values_ + count_; }

  /// Throws ShapeError past 8 entries.
  constexpr void push_back(std::int64_t value) {
    if (count_ == kMaxDims) throw ShapeError("Dims", "a tensor has at most 8 dimensions; reshape() to join some first");
    values_[count_++] = value;
  }
  constexpr void pop_back() { values_[--count_] = 0; }
  constexpr void insert(int at, std::int64_t value) {
    push_back(value);
    for (int i = count_ - 1; i > at; --i) values_[i] = values_[i - 1];
    values_[at] = value;
  }
  constexpr void erase(int at) {
    for (int i = at; i + 1 < count_; ++i) values_[i] = values_[i + 1];
    pop_back();
  }
  /// Product of all entries; 1 when empty.
  TL_HOST_DEVICE constexpr std::int64_t product() const {
    std::int64_t p = 1;
    for (int i = 0; i < count_; ++i) p *= values_[i];
    return p;
  }
  friend constexpr bool operator==(const Dims& a, const Dims& b) {
    if (a.count_ != b.count_) return false;
    for (int i = 0; i < a.count_; ++i)
      if (a.values_[i] != b.values_[i]) return false;
    return true;
  }

 private:
  std::int64_t values_[kMaxDims] = {};
  std::int32_t count_ = 0;
};

/// Row-major strides (in elements) of a contiguous tensor of these sizes.
constexpr Dims contiguous_strides(const Dims& sizes) {
  Dims strides = Dims::filled(sizes.size(), 1);
  for (int i = sizes.size() - 2; i >= 0; --i) strides[i] = strides[i + 1] * (sizes[i + 1] > 1 ? sizes[i + 1] : 1);
  return strides;
}

// ---------------------------------------------------------------------------------------------------------------------- View

/// All that a kernel sees of a tensor: pointer, dtype, device, sizes and strides (in elements; 0 for broadcast axes, and negative
/// where a kernel's contract allows it). A default View is "absent" (an optional operand not given).
struct View {
  void* data = nullptr;
  Dims sizes;
  Dims strides;
  DType dtype = DType::float32;
  Device device;
  bool present = false;

  View() = default;
  View(void* data_, DType dtype_, Device device_, const Dims& sizes_, const Dims& strides_)
      : data(data_), sizes(sizes_), strides(strides_), dtype(dtype_), device(device_), present(true) {}

  explicit operator bool() const { return present; }
  TL_HOST_DEVICE int dim() const { return sizes.size(); }
  TL_HOST_DEVICE std::int64_t size(int i) const { return sizes[i]; }
  TL_HOST_DEVICE std::int64_t stride(int i) const { return strides[i]; }
  TL_HOST_DEVICE std::int64_t numel() const { return sizes.product(); }
  std::int64_t nbytes() const { return numel() * size_of(dtype); }
  template <class T> T* ptr() const { return static_cast<T*>(data); }
  /// Row-major without gaps; axes of size 1 may have any stride, and an empty view is contiguous.
  bool is_contiguous() const {
    if (numel() == 0) return true;
    std::int64_t expected = 1;
    for (int i = dim() - 1; i >= 0; --i) {
      if (sizes[i] == 1) continue;
      if (strides[i] != expected) return false;
      expected *= sizes[i];
    }
    return true;
  }
};

// -------------------------------------------------------------------------------------------------------------- error texts

namespace detail {
inline void append(std::string& s, std::string_view text) { s += text; }
inline void append(std::string& s, const char* text) { s += text; }
inline void append(std::string& s, const std::string& text) { s += text; }
inline void append(std::string& s, char c) { s += c; }
inline void append(std::string& s, bool b) { s += b ? "true" : "false"; }
template <class T>
requires(std::is_integral_v<T>) void append(std::string& s, T value) { s += std::to_string(value); }
/// Shortest text that reads back to the same value.
inline void append(std::string& s, double value) {
  char text[40];
  for (int digits = 6; digits <= 17; ++digits) {
    std::snprintf(text, sizeof text, "%.*g", digits, value);
    if (std::strtod(text, nullptr) == value) break;
  }
  s += text;
}
inline void append(std::string& s, DType dtype) { s += name_of(dtype); }
inline void append(std::string& s, const Dims& dims) {
  s += '[';
  for (int i = 0; i < dims.size(); ++i) {
    if (i) s += ", ";
    s += std::to_string(dims[i]);
  }
  s += ']';
}
inline void append(std::string& s, Device device) {
  s += device.is_cpu() ? "CPU:" : "GPU:";
  s += std::to_string(device.index);
}
/// Joins text, numbers, Dims, DTypes and Devices into one string.
template <class... Parts> std::string concat(const Parts&... parts) {
  std::string s;
  (append(s, parts), ...);
  return s;
}
}  // namespace detail

/// TL_CHECK(condition, ErrorType, op, parts...): throws ErrorType("op: parts...") when the condition is false.
#define TL_CHECK(condition, ErrorType, op, ...)                                     \
  do {                                                                              \
    if (!(condition)) [[unlikely]]                                                  \
      throw ::tensorlite::ErrorType(op, ::tensorlite::detail::concat(__VA_ARGS__)); \
  } while (false)

}  // namespace tensorlite
