// Reductions over any axes of a strided view, by accumulator.
#pragma once

#include "accumulators.cuh"
#include "layout.hpp"
#include "reduction.cuh"

namespace tensorlite::cuda {

/// The values of one result in packs of V; `Value` is what the accumulator takes.
template <class T, int V, class Value> struct StridedSource {
  const T* in;
  Layout<2> kept;  ///< result -> offset (operand 1) of its first value
  Layout<1> reduced;
  __device__ const T* line(std::int64_t result) const { return in + kept.offset_of<1>(result); }
  __device__ Pack<T, V> load(const T* line, std::int64_t i) const {
    return *reinterpret_cast<const Pack<T, V>*>(line + reduced.offset_of<0>(i));
  }
  template <class A> __device__ void add(A& sum, const Pack<T, V>& pack, std::int64_t i) const {
#pragma unroll
    for (int j = 0; j < V; ++j) sum.add(static_cast<Value>(cuda::load(pack.v[j])), i * V + j);
  }
};

/// V neighbouring results at once: the offsets of `kept` and of the items are those of packs.
template <class T, int V, class Value> struct ColumnSource {
  const T* in;
  Layout<2> kept;
  Layout<1> reduced;
  __device__ const T* line(std::int64_t pack) const { return in + kept.offset_of<1>(pack); }
  __device__ Pack<T, V> load(const T* line, std::int64_t i) const {
    return *reinterpret_cast<const Pack<T, V>*>(line + reduced.offset_of<0>(i));
  }
  template <class A> __device__ void add(Lanes<A, V>& sums, const Pack<T, V>& pack, std::int64_t i) const {
#pragma unroll
    for (int j = 0; j < V; ++j) sums.lane[j].add(static_cast<Value>(cuda::load(pack.v[j])), i);
  }
};

/// Whether packs of V elements along axis 0 of `across` (whose operand K is the input) are read whole and aligned.
template <int V, int K, int N, int M> bool packs_lie(const View& in, const Axes<N>& across, const Axes<M>& others, int other) {
  bool fits = in.numel() > 0 && across.count > 0 && across.stride[0][K] == 1 && across.size[0] % V == 0 &&
              reinterpret_cast<std::uintptr_t>(in.data) % 16 == 0;
  for (int i = 1; i < across.count; ++i) fits = fits && across.stride[i][K] % V == 0;
  for (int i = 0; i < others.count; ++i) fits = fits && others.stride[i][other] % V == 0;
  return fits;
}

/// The axes of a reduction: those of the results, in the order of the output, and those that go.
struct ReductionAxes {
  Axes<2> kept;
  Axes<1> reduced;
};
inline ReductionAxes reduction_axes(const View& out, const View& in, std::uint32_t mask) {
  Dims kept_sizes = in.sizes, reduced_sizes = in.sizes;
  for (int i = 0; i < in.dim(); ++i) ((mask >> i & 1) ? kept_sizes : reduced_sizes)[i] = 1;
  const Dims out_strides = contiguous_strides(out.sizes);
  return {merge_axes<2>(kept_sizes, {&out_strides, &in.strides}), merge_axes<1>(reduced_sizes, {&in.strides})};
}

/// Writes one result in the type of the output.
struct Store {
  void* out;
  DType dtype;
  template <class C> __device__ void operator()(std::int64_t i, C value) const {
    switch (dtype) {
      case DType::float32: static_cast<float*>(out)[i] = static_cast<float>(value); break;
      case DType::float64: static_cast<double*>(out)[i] = static_cast<double>(value); break;
      case DType::float16: static_cast<float16*>(out)[i] = store<float16>(static_cast<float>(value)); break;
      case DType::bfloat16: static_cast<bfloat16*>(out)[i] = store<bfloat16>(static_cast<float>(value)); break;
      case DType::int32: static_cast<std::int32_t*>(out)[i] = static_cast<std::int32_t>(value); break;
      case DType::int64: static_cast<std::int64_t*>(out)[i] = static_cast<std::int64_t>(value); break;
      case DType::uint8: static_cast<std::uint8_t*>(out)[i] = static_cast<std::uint8_t>(static_cast<std::int64_t>(value)); break;
      case DType::boolean: static_cast<bool*>(out)[i] = value != 0; break;
    }
  }
};

/// Reduces the axes of `mask` with accumulator A over values of type Value; elements are T. kVector: also make the kernel for packs.
template <class A, class Value, class T, bool kVector, class Finish>
void reduce_strided(const Context& context, const View& out, const View& in, std::uint32_t mask, const Finish& finish) {
  const auto [kept, reduced] = reduction_axes(out, in, mask);
  const std::int64_t results = out.numel(), items = reduced.numel();
  const bool empty = in.numel() == 0;
  const auto stride_of = [](const auto& axes, int k) { return axes.count ? std::abs(axes.stride[0][k]) : std::int64_t(1) << 40; };
  const bool by_columns = stride_of(kept, 1) < stride_of(reduced, 0) && results > 1;
  if constexpr (kVector) {
    constexpr int V = vector_width(sizeof(T));
    if (packs_lie<V, 0>(in, reduced, kept, 1))
      return reduce_rows<A>(context, results, items / V,
                            StridedSource<T, V, Value>{in.ptr<T>(), make_layout(kept, 1), make_layout(reduced, V)}, finish);
    if (by_columns && packs_lie<V, 1>(in, kept, reduced, 0))
      return reduce_columns<A, V>(context, results / V, items,
                                  ColumnSource<T, V, Value>{in.ptr<T>(), make_layout(kept, V), make_layout(reduced, 1)}, finish);
  }
  const StridedSource<T, 1, Value> source{in.ptr<T>(), make_layout(kept, 1), make_layout(reduced, 1)};
  if (by_columns) reduce_columns<A>(context, results, empty ? 0 : items, source, finish);
  else reduce_rows<A>(context, results, empty ? 0 : items, source, finish);
}

// The families, each in a file of its own (they are many kernels).
void reduce_sums(const Context& context, ReduceOp op, const View& out, const View& in, std::uint32_t axes);
void reduce_extremes(const Context& context, ReduceOp op, const View& out, const View& in, std::uint32_t axes);
void reduce_moments(const Context& context, ReduceOp op, const View& out, const View& in, std::uint32_t axes, double correction);

}  // namespace tensorlite::cuda
