// Moving stretches of elements between strides and dtypes: what loads and stores the blocks of elementwise kernels.
#pragma once

#include "isa.hpp"

#include <tensorlite/base.hpp>

namespace tensorlite::cpu::TL_CPU_NS {

/// Moves `count` elements; strides in elements.
using Mover = void (*)(void* to, std::int64_t to_stride, const void* from, std::int64_t from_stride, std::int64_t count);

/// The mover that keeps the bits of elements of this dtype.
Mover raw_mover(DType dtype);

/// The mover between a dtype and the one it is computed in: half types and float32, bool and uint8 (a stored bool is 0 or 1), or equal
/// dtypes.
Mover mover(DType from, DType to);

/// float32 for the half types, uint8 for bool, else the dtype itself.
constexpr DType compute_dtype(DType dtype) {
  if (is_half(dtype)) return kFloat32;
  return dtype == kBool ? kUInt8 : dtype;
}

}  // namespace tensorlite::cpu::TL_CPU_NS
