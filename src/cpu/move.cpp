#include "move.hpp"

#include "dispatch.hpp"

#include <cstring>

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace tensorlite::cpu::TL_CPU_NS {
namespace {

template <class T> void move_raw(void* to_, std::int64_t to_stride, const void* from_, std::int64_t from_stride, std::int64_t count) {
  T* to = static_cast<T*>(to_);
  const T* from = static_cast<const T*>(from_);
  if (to_stride == 1 && from_stride == 1) std::memmove(to, from, static_cast<std::size_t>(count) * sizeof(T));
  else if (to_stride == 1 && from_stride == 0) std::fill_n(to, count, *from);
  else if (to_stride == 1)
    for (std::int64_t i = 0; i < count; ++i) to[i] = from[i * from_stride];
  else
    for (std::int64_t i = 0; i < count; ++i) to[i * to_stride] = from[i * from_stride];
}

template <class To, class From> inline To converted(From x) {
  if constexpr (std::is_same_v<To, bool>) return x != 0;
  else return To(x);
}

template <class To, class From>
void move_converted(void* to_, std::int64_t to_stride, const void* from_, std::int64_t from_stride, std::int64_t count) {
  To* to = static_cast<To*>(to_);
  const From* from = static_cast<const From*>(from_);
  if (to_stride == 1 && from_stride == 1)
    for (std::int64_t i = 0; i < count; ++i) to[i] = converted<To>(from[i]);
  else
    for (std::int64_t i = 0; i < count; ++i) to[i * to_stride] = converted<To>(from[i * from_stride]);
}

#if defined(__F16C__)
inline void eight_to_float(float* to, const float16* from) {
  _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}
inline void eight_to_half(float16* to, const float* from) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(_mm256_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT));
}

/// Eight at a time. The tail goes through the same instruction as the rest: a NaN's payload must not depend on where a chunk ends.
template <class To, class From, void (*kConvert)(To*, const From*)>
void move_by_eight(void* to_, std::int64_t to_stride, const void* from_, std::int64_t from_stride, std::int64_t count) {
  To* to = static_cast<To*>(to_);
  const From* from = static_cast<const From*>(from_);
  std::int64_t i = 0;
  if (to_stride == 1 && from_stride == 1)
    for (; i + 8 <= count; i += 8) kConvert(to + i, from + i);
  for (; i < count; i += 8) {
    const std::int64_t n = std::min<std::int64_t>(8, count - i);
    From in[8] = {};
    To out[8];
    for (std::int64_t k = 0; k < n; ++k) in[k] = from[(i + k) * from_stride];
    kConvert(out, in);
    for (std::int64_t k = 0; k < n; ++k) to[(i + k) * to_stride] = out[k];
  }
}
constexpr Mover kHalfToFloat = &move_by_eight<float, float16, &eight_to_float>,
                kFloatToHalf = &move_by_eight<float16, float, &eight_to_half>;
#else
constexpr Mover kHalfToFloat = &move_converted<float, float16>, kFloatToHalf = &move_converted<float16, float>;
#endif

}  // namespace

Mover raw_mover(DType dtype) {
  return dispatch_bits(dtype, [](auto tag) -> Mover { return &move_raw<typename decltype(tag)::type>; });
}

Mover mover(DType from, DType to) {
  if (from == to || (from == kBool && to == kUInt8)) return raw_mover(to);
  if (from == kFloat16 && to == kFloat32) return kHalfToFloat;
  if (from == kBFloat16 && to == kFloat32) return &move_converted<float, bfloat16>;
  if (from == kFloat32 && to == kFloat16) return kFloatToHalf;
  if (from == kFloat32 && to == kBFloat16) return &move_converted<bfloat16, float>;
  if (from == kUInt8 && to == kBool) return &move_converted<bool, std::uint8_t>;
  throw DTypeError("elementwise", tensorlite::detail::concat("operands of ", from, " and ", to, " in one op; convert one with to()"));
}

}  // namespace tensorlite::cpu::TL_CPU_NS
