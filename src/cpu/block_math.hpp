// Block functions (see blocks.hpp) made from elementwise functors.
#pragma once

#include "blocks.hpp"
#include "vec.hpp"

#include <tensorlite/elementwise.hpp>

namespace tensorlite::cpu::TL_CPU_NS {

/// Calls f(Vec of stretch i of each input...) and stores what it gives. The tail runs through the same code in a padded register, so that
/// a value never depends on where a chunk ends.
template <class S, class F, class... In> inline void map_vectors(S* out, std::int64_t count, F f, const In*... in) {
  using V = Vec<S>;
  std::int64_t i = 0;
  for (; i + V::kSize <= count; i += V::kSize) f(V::load(in + i)...).store(out + i);
  if (i < count) f(V::load(in + i, count - i)...).store(out + i, count - i);
}

}  // namespace tensorlite::cpu::TL_CPU_NS
