// From a View's run-time dtype and strides to typed, simple loops.
#pragma once

#include "isa.hpp"
#include "parallel.hpp"

#include <tensorlite/base.hpp>

#include <algorithm>
#include <array>

namespace tensorlite::cpu::TL_CPU_NS {

// ---------------------------------------------------------------------------------------------------------------------- dtypes
// dispatch_xxx(op, dtype, [&](auto tag) { using T = typename decltype(tag)::type; ... }); a dtype outside the family throws DTypeError.

template <class T> struct Type { using type = T; };

/// The type that T's sums and functions are computed in.
template <class T> using ComputeType = std::conditional_t<std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>, float, T>;

[[noreturn]] inline void throw_dtype(const char* op, DType dtype, const char* expected) {
  throw DTypeError(op, tensorlite::detail::concat("got ", dtype, ", expected ", expected, "; convert the tensor with to()"));
}

template <class F> decltype(auto) dispatch_all(const char* op, DType dtype, F&& f) {
  switch (dtype) {
    case DType::float32: return f(Type<float>{});
    case DType::float64: return f(Type<double>{});
    case DType::float16: return f(Type<float16>{});
    case DType::bfloat16: return f(Type<bfloat16>{});
    case DType::int32: return f(Type<std::int32_t>{});
    case DType::int64: return f(Type<std::int64_t>{});
    case DType::uint8: return f(Type<std::uint8_t>{});
    case DType::boolean: return f(Type<bool>{});
  }
  throw_dtype(op, dtype, "a known dtype");
}

/// float32, float64, float16, bfloat16.
template <class F> decltype(auto) dispatch_floating(const char* op, DType dtype, F&& f) {
  switch (dtype) {
    case DType::float32: return f(Type<float>{});
    case DType::float64: return f(Type<double>{});
    case DType::float16: return f(Type<float16>{});
    case DType::bfloat16: return f(Type<bfloat16>{});
    default: throw_dtype(op, dtype, "a floating-point dtype");
  }
}

/// All but bool.
template <class F> decltype(auto) dispatch_numeric(const char* op, DType dtype, F&& f) {
  switch (dtype) {
    case DType::float32: return f(Type<float>{});
    case DType::float64: return f(Type<double>{});
    case DType::float16: return f(Type<float16>{});
    case DType::bfloat16: return f(Type<bfloat16>{});
    case DType::int32: return f(Type<std::int32_t>{});
    case DType::int64: return f(Type<std::int64_t>{});
    case DType::uint8: return f(Type<std::uint8_t>{});
    default: throw_dtype(op, dtype, "a numeric dtype");
  }
}

/// An unsigned integer as wide as the dtype: for kernels that move elements and never look at them.
template <class F> decltype(auto) dispatch_bits(DType dtype, F&& f) {
  switch (size_of(dtype)) {
    case 8: return f(Type<std::uint64_t>{});
    case 4: return f(Type<std::uint32_t>{});
    case 2: return f(Type<std::uint16_t>{});
    default: return f(Type<std::uint8_t>{});
  }
}

// --------------------------------------------------------------------------------------------------------------- n-d iteration

/// The common index space of N views of equal sizes with axes of size 1 dropped, the rest sorted so that view 0 is walked in the order
/// of its memory, and neighbours merged where every view allows it. At least one axis; the last one is innermost.
template <int N> struct Loop {
  Dims sizes;
  std::array<Dims, N> strides;  ///< in elements
  std::int64_t numel = 0;

  std::int64_t inner_size() const { return sizes.back(); }
  std::int64_t inner_stride(int view) const { return strides[view].back(); }
  /// View `view` is one dense run in the order of the loop.
  bool is_dense(int view) const { return sizes.size() == 1 && (strides[view][0] == 1 || sizes[0] <= 1); }
};

namespace loop_detail {

/// Whether axis a should be outside of axis b: larger stride in view 0, ties (0: broadcast) decided by the next views.
template <int N> bool goes_outside(const Loop<N>& loop, int a, int b) {
  for (int v = 0; v < N; ++v) {
    const std::int64_t sa = std::abs(loop.strides[v][a]), sb = std::abs(loop.strides[v][b]);
    if (sa != sb && sa != 0 && sb != 0) return sa > sb;
    if (v == 0 && sa != sb) return sa > sb;
  }
  return a < b;
}

template <int N> void sort_axes(Loop<N>& loop) {
  for (int i = 1; i < loop.sizes.size(); ++i)
    for (int j = i; j > 0 && goes_outside(loop, j, j - 1); --j) {
      std::swap(loop.sizes[j], loop.sizes[j - 1]);
      for (auto& s : loop.strides) std::swap(s[j], s[j - 1]);
    }
}

template <int N> void merge_axes(Loop<N>& loop) {
  for (int i = loop.sizes.size() - 2; i >= 0; --i) {
    bool mergeable = true;
    for (auto& s : loop.strides) mergeable = mergeable && s[i] == s[i + 1] * loop.sizes[i + 1];
    if (!mergeable) continue;
    loop.sizes[i] *= loop.sizes[i + 1];
    loop.sizes.erase(i + 1);
    for (auto& s : loop.strides) {
      s[i] = s[i + 1];
      s.erase(i + 1);
    }
  }
}

}  // namespace loop_detail

template <class... Views> Loop<sizeof...(Views)> make_loop(const Views&... views) {
  constexpr int N = sizeof...(Views);
  const std::array<const View*, N> all = {&views...};
  Loop<N> loop;
  loop.numel = all[0]->numel();
  for (int axis = 0; axis < all[0]->dim(); ++axis) {
    if (all[0]->size(axis) == 1) continue;
    loop.sizes.push_back(all[0]->size(axis));
    for (int v = 0; v < N; ++v) loop.strides[v].push_back(all[v]->stride(axis));
  }
  if (loop.sizes.empty()) {
    loop.sizes.push_back(1);
    for (auto& s : loop.strides) s.push_back(1);
    return loop;
  }
  if (loop.numel == 0) return loop;
  loop_detail::sort_axes(loop);
  loop_detail::merge_axes(loop);
  return loop;
}

/// Walks the elements [begin, end) of the loop's order: f(offsets, index, count) for each stretch along the innermost axis, with the
/// element offset of its first element in every view and its position in the order.
template <int N, class F> void for_each_run(const Loop<N>& loop, std::int64_t begin, std::int64_t end, F&& f) {
  if (begin >= end) return;
  const int last = loop.sizes.size() - 1;
  std::array<std::int64_t, kMaxDims> at{};
  std::array<std::int64_t, N> offsets{};
  std::int64_t rest = begin;
  for (int axis = last; axis >= 0; --axis) {
    at[axis] = rest % loop.sizes[axis];
    rest /= loop.sizes[axis];
    for (int v = 0; v < N; ++v) offsets[v] += at[axis] * loop.strides[v][axis];
  }
  for (std::int64_t index = begin;;) {
    const std::int64_t count = std::min(end - index, loop.sizes[last] - at[last]);
    f(offsets, index, count);
    index += count;
    if (index >= end) return;
    for (int v = 0; v < N; ++v) offsets[v] -= at[last] * loop.strides[v][last];  // the stretch ended its row
    at[last] = 0;
    for (int axis = last - 1; axis >= 0; --axis) {
      for (int v = 0; v < N; ++v) offsets[v] += loop.strides[v][axis];
      if (++at[axis] < loop.sizes[axis]) break;
      for (int v = 0; v < N; ++v) offsets[v] -= loop.sizes[axis] * loop.strides[v][axis];
      at[axis] = 0;
    }
  }
}

/// for_each_run over the whole loop, in parallel; `grain` is in elements.
template <int N, class F> void parallel_runs(const Loop<N>& loop, std::int64_t grain, F&& f) {
  parallel_for(loop.numel, grain, [&](std::int64_t begin, std::int64_t end) { for_each_run(loop, begin, end, f); });
}

}  // namespace tensorlite::cpu::TL_CPU_NS
