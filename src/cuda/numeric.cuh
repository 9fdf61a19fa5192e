// Element types in device code: what a stored type is computed in, conversions, vectors of 16 bytes, dtype switches.
#pragma once

#include "common.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace tensorlite::cuda {

template <class T> struct ComputeOf { using type = T; };
template <> struct ComputeOf<float16> { using type = float; };
template <> struct ComputeOf<bfloat16> { using type = float; };
/// float for the 16-bit types, else the type itself.
template <class T> using Compute = typename ComputeOf<T>::type;

template <class T> __device__ __forceinline__ Compute<T> load(T value) { return value; }
__device__ __forceinline__ float load(float16 value) { return __half2float(__ushort_as_half(value.bits)); }
__device__ __forceinline__ float load(bfloat16 value) { return __uint_as_float(static_cast<unsigned>(value.bits) << 16); }

/// Rounds a computed value to the stored type.
template <class T> __device__ __forceinline__ T store(Compute<T> value) {
  if constexpr (std::is_same_v<T, float16>) {
    float16 half;
    half.bits = __half_as_ushort(__float2half_rn(value));
    return half;
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    bfloat16 half;
    half.bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
    return half;
  } else {
    return value;
  }
}

/// The conversion of `copy`, as elementwise::convert.
template <class To, class From> __device__ __forceinline__ To convert(From from) {
  if constexpr (std::is_same_v<To, From>) return from;
  else if constexpr (is_half(dtype_of<To>)) return store<To>(static_cast<float>(load(from)));
  else return elementwise::convert<To>(load(from));
}

/// The normal distribution's cumulative probability to 4e-7 of its value, in half the instructions of erfcf: exp(-x^2 / 2) / 2 times a
/// polynomial in t = 1 / (1 + 0.3 |x| / sqrt(2)) that is within 2e-8 of erfcx(|x| / sqrt(2)), for x < 0; one minus that for the others.
__device__ __forceinline__ float normal_cdf(float x) {
  const float a = ::fminf(::fabsf(x), 20.0f), square = a * a, rest = ::fmaf(a, a, -square);
  float e = ::expf(-0.5f * square);
  e = ::fmaf(-0.5f * e, rest, e);
  float t;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(t) : "f"(::fmaf(a, 0.21213203f, 1.0f)));
  float p = -0.12938642f;
  p = ::fmaf(p, t, 0.4848457f);
  p = ::fmaf(p, t, -0.5106606f);
  p = ::fmaf(p, t, 0.5456809f);
  p = ::fmaf(p, t, -0.093080655f);
  p = ::fmaf(p, t, 0.21417116f);
  p = ::fmaf(p, t, 0.14856018f);
  p = ::fmaf(p, t, 0.17067926f);
  p = ::fmaf(p, t, 0.1691905f);
  const float tail = 0.5f * e * (p * t);
  return x < 0 ? tail : 1.0f - tail;
}

/// V elements that are read and written at once.
template <class T, int V> struct alignas(sizeof(T) * V) Pack { T v[V]; };

/// Elements of a 16-byte access when the widest operand has `bytes` bytes.
constexpr int vector_width(std::size_t bytes) { return static_cast<int>(16 / bytes); }

template <class T> struct Type { using type = T; };

/// Calls f(Type<T>{}) with T the C++ type of `dtype`.
template <class F> void dispatch_floating(const Context& context, DType dtype, F&& f) {
  switch (dtype) {
    case DType::float32: return f(Type<float>{});
    case DType::float64: return f(Type<double>{});
    case DType::float16: return f(Type<float16>{});
    case DType::bfloat16: return f(Type<bfloat16>{});
    default:
      throw NotImplementedError(context.op, detail::concat("not available on ", context.device, " for ", dtype, "; convert to float32"));
  }
}
template <class F> void dispatch_all(const Context& context, DType dtype, F&& f) {
  switch (dtype) {
    case DType::int32: return f(Type<std::int32_t>{});
    case DType::int64: return f(Type<std::int64_t>{});
    case DType::uint8: return f(Type<std::uint8_t>{});
    case DType::boolean: return f(Type<bool>{});
    default: return dispatch_floating(context, dtype, f);
  }
}
/// By element size alone, for kernels that only move elements: T is an unsigned type of that size.
template <class F> void dispatch_size(DType dtype, F&& f) {
  switch (size_of(dtype)) {
    case 8: return f(Type<std::uint64_t>{});
    case 4: return f(Type<std::uint32_t>{});
    case 2: return f(Type<std::uint16_t>{});
    default: return f(Type<std::uint8_t>{});
  }
}

}  // namespace tensorlite::cuda
