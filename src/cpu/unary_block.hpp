// What unary_float.cpp and unary_double.cpp instantiate.
#pragma once

#include "block_math.hpp"
#include "unary.hpp"

namespace tensorlite::cpu::TL_CPU_NS {
namespace {

template <class Op, class S> void value_block(void* out, const void* const* in, std::int64_t count, const void* parameters) {
  const UnaryParams& params = *static_cast<const UnaryParams*>(parameters);
  const S* x = static_cast<const S*>(in[0]);
  if constexpr (Op::gives_bool) {
    const auto p = elementwise::parameters_as<S>(params);
    for (std::int64_t i = 0; i < count; ++i) static_cast<bool*>(out)[i] = Op::value(x[i], p);
  } else {
    const auto p = elementwise::parameters_as<Vec<S>>(params);
    map_vectors(
        static_cast<S*>(out), count, [p](Vec<S> v) { return Op::value(v, p); }, x);
  }
}

/// An input that the derivative does not look at is read from grad_out instead: the load is dropped, and no null is touched.
template <class Op, class S> void derivative_block(void* out, const void* const* in, std::int64_t count, const void* parameters) {
  const auto p = elementwise::parameters_as<Vec<S>>(*static_cast<const UnaryParams*>(parameters));
  const S* grad = static_cast<const S*>(in[0]);
  const S* x = Op::uses_input ? static_cast<const S*>(in[1]) : grad;
  const S* y = Op::uses_result ? static_cast<const S*>(in[2]) : grad;
  map_vectors(
      static_cast<S*>(out), count, [p](Vec<S> g, Vec<S> v, Vec<S> r) { return g * Op::derivative(v, r, p); }, grad, x, y);
}

#define TL_VALUE_ENTRY(name, text) &value_block<elementwise::name, S>,
template <class S> BlockFunction value_function(UnaryOp op) {
  static constexpr BlockFunction functions[] = {TL_UNARY_OPS(TL_VALUE_ENTRY)};
  return functions[static_cast<int>(op)];
}
#undef TL_VALUE_ENTRY

#define TL_DERIVATIVE_ENTRY(name, text) &derivative_block<elementwise::name, S>,
template <class S> BlockFunction derivative_function(UnaryOp op) {
  static constexpr BlockFunction functions[] = {TL_UNARY_OPS(TL_DERIVATIVE_ENTRY)};
  return functions[static_cast<int>(op)];
}
#undef TL_DERIVATIVE_ENTRY

}  // namespace
}  // namespace tensorlite::cpu::TL_CPU_NS
