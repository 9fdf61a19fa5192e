// One kernel for every elementwise family: a functor over N strided operands, in packs of 16 bytes where the layout allows it.
#pragma once

#include "layout.hpp"
#include "numeric.cuh"

namespace tensorlite::cuda {

inline constexpr int kElementwiseThreads = 128;
inline constexpr int kElementwiseUnroll = 2;  ///< packs of one thread, all loaded before the first is used

/// Pointers of the output and the inputs; a null input is the scalar.
template <int N> struct Operands {
  void* data[N] = {};
  std::uint64_t scalar = 0;  ///< bits of the one scalar operand
  template <class T> void set_scalar(T value) { __builtin_memcpy(&scalar, &value, sizeof value); }
};

/// One pack of every input, called element by element.
template <int V, int K, class... In> struct InputPacks {
  template <class L, class O, class I> __device__ void load(const L&, const O&, const I&) {}
  template <class F, class... A> __device__ auto call(const F& f, int, A... a) const { return f(a...); }
};
template <int V, int K, class T, class... Rest> struct InputPacks<V, K, T, Rest...> {
  Pack<T, V> head;
  InputPacks<V, K + 1, Rest...> tail;

  template <int N> __device__ void load(const Layout<N>& layout, const Operands<N>& operands, const std::int64_t (&offset)[N]) {
    const T* data = static_cast<const T*>(operands.data[K]);
    if (data == nullptr) {
      T value;
      memcpy(&value, &operands.scalar, sizeof(T));
      for (int j = 0; j < V; ++j) head.v[j] = value;
    } else if (V == 1 || layout.broadcast[K]) {
      const T value = data[offset[K]];
      for (int j = 0; j < V; ++j) head.v[j] = value;
    } else {
      head = *reinterpret_cast<const Pack<T, V>*>(data + offset[K]);
    }
    tail.load(layout, operands, offset);
  }
  template <class F, class... A> __device__ auto call(const F& f, int j, A... a) const { return tail.call(f, j, a..., head.v[j]); }
};

template <int V, class F, class Out, class... In>
__global__ void __launch_bounds__(kElementwiseThreads)
    elementwise_kernel(const F f, const __grid_constant__ Layout<1 + sizeof...(In)> layout, const Operands<1 + sizeof...(In)> operands) {
  constexpr int N = 1 + sizeof...(In);
  InputPacks<V, 1, In...> inputs[kElementwiseUnroll];
  std::int64_t to[kElementwiseUnroll];
  const std::uint32_t first = blockIdx.x * (kElementwiseThreads * kElementwiseUnroll) + threadIdx.x;
#pragma unroll
  for (int u = 0; u < kElementwiseUnroll; ++u) {
    const std::uint32_t pack = first + u * kElementwiseThreads;
    if (pack >= layout.packs) continue;
    std::int64_t offset[N];
    layout.offsets(pack, offset);
    inputs[u].load(layout, operands, offset);
    to[u] = offset[0];
  }
#pragma unroll
  for (int u = 0; u < kElementwiseUnroll; ++u) {
    if (first + u * kElementwiseThreads >= layout.packs) continue;
    Pack<Out, V> result;
#pragma unroll
    for (int j = 0; j < V; ++j) result.v[j] = inputs[u].call(f, j);
    *reinterpret_cast<Pack<Out, V>*>(static_cast<Out*>(operands.data[0]) + to[u]) = result;
  }
}

/// Launches over `axes`, halving the longest axis until a part has fewer than 2^31 packs.
template <int V, class Out, class... In, class F>
void launch_packs(const Context& context, const F& f, const Axes<1 + sizeof...(In)>& axes, const Operands<1 + sizeof...(In)>& operands) {
  constexpr int N = 1 + sizeof...(In);
  constexpr std::size_t bytes[] = {sizeof(Out), sizeof(In)...};
  if (axes.numel() / V >= (std::int64_t(1) << 31)) {
    const int longest = static_cast<int>(std::max_element(axes.size, axes.size + axes.count) - axes.size);
    Axes<N> low = axes, high = axes;
    Operands<N> rest = operands;
    low.size[longest] = longest == 0 ? axes.size[0] / 2 / V * V : axes.size[longest] / 2;
    high.size[longest] -= low.size[longest];
    for (int k = 0; k < N; ++k)
      if (rest.data[k])
        rest.data[k] = static_cast<char*>(rest.data[k]) + low.size[longest] * axes.stride[longest][k] * static_cast<std::int64_t>(bytes[k]);
    launch_packs<V, Out, In...>(context, f, low, operands);
    launch_packs<V, Out, In...>(context, f, high, rest);
    return;
  }
  const Layout<N> layout = make_layout(axes, V);
  constexpr std::uint32_t kChunk = kElementwiseThreads * kElementwiseUnroll;
  const std::uint32_t blocks = (layout.packs + kChunk - 1) / kChunk;
  if (blocks == 0) return;
  elementwise_kernel<V, F, Out, In...><<<blocks, kElementwiseThreads, 0, stream_of(context)>>>(f, layout, operands);
  check_launch(context);
}

/// Merges the axes of `out` and `inputs` (which have its sizes; absent: the scalar of `operands`).
template <int N> Axes<N> axes_of(const View& out, std::initializer_list<const View*> inputs) {
  const Dims none = Dims::filled(out.dim(), 0);
  const Dims* strides[N] = {&out.strides};
  int k = 1;
  for (const View* input : inputs) strides[k++] = input->present ? &input->strides : &none;
  const Dims* const(&fixed)[N] = strides;
  return merge_axes<N>(out.sizes, fixed);
}
template <int N> void set_pointers(Operands<N>& operands, const View& out, std::initializer_list<const View*> inputs) {
  operands.data[0] = out.data;
  int k = 1;
  for (const View* input : inputs) operands.data[k++] = input->data;
}

/// Whether F holds a switch over all ops: unrolled over a pack it would be far too much code.
template <class F>
concept ChoosesAtRunTime = requires {
  F::kChoosesAtRunTime;
};

/// Runs `fast` in packs where the layout allows it, else `slow` (the same function, chosen at run time, so that strided layouts do not
/// double the number of kernels) element by element.
template <class Out, class... In, class Fast, class Slow>
void elementwise(const Context& context, const Axes<1 + sizeof...(In)>& axes, const Operands<1 + sizeof...(In)>& operands, const Fast& fast,
                 const Slow& slow) {
  constexpr int N = 1 + sizeof...(In);
  constexpr int V = vector_width(std::max({sizeof(Out), sizeof(In)...}));
  constexpr std::size_t bytes[N] = {sizeof(Out), sizeof(In)...};
  if constexpr (!ChoosesAtRunTime<Fast>) {
    if (packs_fit<N>(axes, V, operands.data, bytes)) return launch_packs<V, Out, In...>(context, fast, axes, operands);
  }
  launch_packs<1, Out, In...>(context, slow, axes, operands);
}

}  // namespace tensorlite::cuda
