// What binary_float.cpp, binary_double.cpp and binary_integers.cpp instantiate.
#pragma once

#include "binary.hpp"
#include "block_math.hpp"

namespace tensorlite::cpu::TL_CPU_NS {
namespace {

template <class Op, class S> void binary_block(void* out_, const void* const* in, std::int64_t count, const void*) {
  const S* a = static_cast<const S*>(in[0]);
  const S* b = static_cast<const S*>(in[1]);
  using Out = std::conditional_t<Op::gives_bool, bool, S>;
  Out* out = static_cast<Out*>(out_);
  if constexpr (std::is_floating_point_v<Out>) {
    map_vectors(
        out, count, [](Vec<S> x, Vec<S> y) { return Op::value(x, y); }, a, b);
  } else {
    for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<Out>(Op::value(a[i], b[i]));
  }
}

template <class Op, class S> constexpr BlockFunction binary_block_or_null() {
  if constexpr (std::is_floating_point_v<S> ? Op::accepts_floats : Op::accepts_integers) return &binary_block<Op, S>;
  else return nullptr;
}

#define TL_ENTRY(name, text) binary_block_or_null<elementwise::name, S>(),
template <class S> BlockFunction binary_function(BinaryOp op) {
  static constexpr BlockFunction functions[] = {TL_BINARY_OPS(TL_ENTRY)};
  return functions[static_cast<int>(op)];
}
#undef TL_ENTRY

}  // namespace
}  // namespace tensorlite::cpu::TL_CPU_NS
