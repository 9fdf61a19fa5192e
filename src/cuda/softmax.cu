// Softmax and its gradient over the middle axis of dense [outer, n, inner]. Rows of up to 1024 elements live in a warp's registers: one
// read, one write.
#include "accumulators.cuh"
#include "reduction.cuh"

namespace tensorlite::cuda {
namespace {

/// Sums over a warp, in every lane.
template <class A> __device__ A merge_warp_all(A value) {
  value = merge_warp(value);
  A all;
  unsigned words[sizeof(A) / 4];
  memcpy(words, &value, sizeof(A));
  for (unsigned& word : words) word = __shfl_sync(0xffffffffu, word, 0);
  memcpy(&all, words, sizeof(A));
  return all;
}

/// The pack-th pack of a warp's row is `lane + 32 * pack`; elements past n are skipped by the callers.
template <class T, int V, int kPacks, bool kLog>
__global__ void __launch_bounds__(kThreads) softmax_warp_kernel(T* out, const T* in, std::int64_t rows, int n) {
  using C = Compute<T>;
  const int lane = threadIdx.x % 32, packs = n / V;
  const std::int64_t warps = static_cast<std::int64_t>(gridDim.x) * (kThreads / 32);
  for (std::int64_t row = blockIdx.x * static_cast<std::int64_t>(kThreads / 32) + threadIdx.x / 32; row < rows; row += warps) {
    const Pack<T, V>* from = reinterpret_cast<const Pack<T, V>*>(in + row * n);
    Pack<T, V> read[kPacks];  // all of them before the first is used
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
      if (lane + 32 * p < packs) read[p] = from[lane + 32 * p];
    C x[kPacks][V];
    Extreme<C, true> top;
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
#pragma unroll
      for (int j = 0; j < V; ++j) {
        x[p][j] = lane + 32 * p < packs ? load(read[p].v[j]) : lowest<C>();
        top.add(x[p][j], 0);
      }
    const C largest = merge_warp_all(top).value;
    Sum<C> sum;
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C shifted = x[p][j] - largest, e = exp(shifted);  // 0 where the row has no element
        sum.value += e;
        x[p][j] = kLog ? shifted : e;
      }
    const C total = merge_warp_all(sum).value, scale = kLog ? log(total) : C(1) / total;
    Pack<T, V>* to = reinterpret_cast<Pack<T, V>*>(out + row * n);
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (lane + 32 * p >= packs) continue;
      Pack<T, V> pack;
#pragma unroll
      for (int j = 0; j < V; ++j) pack.v[j] = store<T>(kLog ? x[p][j] - scale : x[p][j] * scale);
      to[lane + 32 * p] = pack;
    }
  }
}

template <class T, int V, int kPacks, bool kLog>
__global__ void __launch_bounds__(kThreads)
    softmax_backward_warp_kernel(T* grad_in, const T* grad_out, const T* result, std::int64_t rows, int n) {
  using C = Compute<T>;
  const int lane = threadIdx.x % 32, packs = n / V;
  const std::int64_t warps = static_cast<std::int64_t>(gridDim.x) * (kThreads / 32);
  for (std::int64_t row = blockIdx.x * static_cast<std::int64_t>(kThreads / 32) + threadIdx.x / 32; row < rows; row += warps) {
    const Pack<T, V>*g_from = reinterpret_cast<const Pack<T, V>*>(grad_out + row * n),
                  *y_from = reinterpret_cast<const Pack<T, V>*>(result + row * n);
    Pack<T, V> g[kPacks], y[kPacks];
    Sum<C> sum;
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
      if (lane + 32 * p < packs) g[p] = g_from[lane + 32 * p], y[p] = y_from[lane + 32 * p];
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
      if (lane + 32 * p < packs)
#pragma unroll
        for (int j = 0; j < V; ++j) sum.value += kLog ? load(g[p].v[j]) : load(g[p].v[j]) * load(y[p].v[j]);
    const C total = merge_warp_all(sum).value;
    Pack<T, V>* to = reinterpret_cast<Pack<T, V>*>(grad_in + row * n);
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (lane + 32 * p >= packs) continue;
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C gv = load(g[p].v[j]), yv = load(y[p].v[j]);
        g[p].v[j] = store<T>(kLog ? gv - exp(yv) * total : yv * (gv - total));
      }
      to[lane + 32 * p] = g[p];
    }
  }
}

/// Long rows: one block each, read twice. `inner` 1.
template <class T, bool kLog>
__global__ void __launch_bounds__(kThreads) softmax_block_kernel(T* out, const T* in, std::int64_t rows, std::int64_t n) {
  using C = Compute<T>;
  __shared__ LogSumExp<C> shared;
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    LogSumExp<C> sum;
    for (std::int64_t i = threadIdx.x; i < n; i += kThreads) sum.add(load(in[row * n + i]), 0);
    sum = merge_block(sum);
    if (threadIdx.x == 0) shared = sum;
    __syncthreads();
    const C largest = shared.largest, scale = kLog ? log(shared.sum) : C(1) / shared.sum;
    for (std::int64_t i = threadIdx.x; i < n; i += kThreads) {
      const C shifted = load(in[row * n + i]) - largest;
      out[row * n + i] = store<T>(kLog ? shifted - scale : exp(shifted) * scale);
    }
  }
}
template <class T, bool kLog>
__global__ void __launch_bounds__(kThreads)
    softmax_backward_block_kernel(T* grad_in, const T* grad_out, const T* result, std::int64_t rows, std::int64_t n) {
  using C = Compute<T>;
  __shared__ C shared;
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    Sum<C> sum;
    for (std::int64_t i = row * n + threadIdx.x; i < (row + 1) * n; i += kThreads)
      sum.value += kLog ? load(grad_out[i]) : load(grad_out[i]) * load(result[i]);
    sum = merge_block(sum);
    if (threadIdx.x == 0) shared = sum.value;
    __syncthreads();
    for (std::int64_t i = row * n + threadIdx.x; i < (row + 1) * n; i += kThreads) {
      const C g = load(grad_out[i]), y = load(result[i]);
      grad_in[i] = store<T>(kLog ? g - exp(y) * shared : y * (g - shared));
    }
  }
}

/// inner > 1: one thread per line, neighbours side by side.
template <class T, bool kLog> struct SoftmaxLine {
  T* out;
  const T* in;
  std::int64_t n, inner;
  __device__ void operator()(std::int64_t line) const {
    using C = Compute<T>;
    const std::int64_t base = line / inner * n * inner + line % inner;
    LogSumExp<C> sum;
    for (std::int64_t i = 0; i < n; ++i) sum.add(load(in[base + i * inner]), 0);
    const C scale = kLog ? log(sum.sum) : C(1) / sum.sum;
    for (std::int64_t i = 0; i < n; ++i) {
      const C shifted = load(in[base + i * inner]) - sum.largest;
      out[base + i * inner] = store<T>(kLog ? shifted - scale : exp(shifted) * scale);
    }
  }
};
template <class T, bool kLog> struct SoftmaxBackwardLine {
  T* grad_in;
  const T *grad_out, *result;
  std::int64_t n, inner;
  __device__ void operator()(std::int64_t line) const {
    using C = Compute<T>;
    const std::int64_t base = line / inner * n * inner + line % inner;
    C sum = 0;
    for (std::int64_t i = 0; i < n; ++i)
      sum += kLog ? load(grad_out[base + i * inner]) : load(grad_out[base + i * inner]) * load(result[base + i * inner]);
    for (std::int64_t i = 0; i < n; ++i) {
      const C g = load(grad_out[base + i * inner]), y = load(result[base + i * inner]);
      grad_in[base + i * inner] = store<T>(kLog ? g - exp(y) * sum : y * (g - sum));
    }
  }
};

/// Calls f(width, packs) with the constants of the register kernel that holds a row of n <= 1024 elements.
template <class T, class F> void with_row_shape(int n, bool aligned, F&& f) {
  constexpr int V = vector_width(sizeof(T));
  if (aligned && n % V == 0 && n >= 32 * V) {
    if (n <= 64 * V) return f(std::integral_constant<int, V>{}, std::integral_constant<int, 2>{});
    return f(std::integral_constant<int, V>{}, std::integral_constant<int, 1024 / 32 / V>{});
  }
  if (n <= 32) return f(std::integral_constant<int, 1>{}, std::integral_constant<int, 1>{});
  if (n <= 128) return f(std::integral_constant<int, 1>{}, std::integral_constant<int, 4>{});
  return f(std::integral_constant<int, 1>{}, std::integral_constant<int, 32>{});
}

bool aligned16(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; }

template <class T, bool kLog> void forward(const Context& context, const View& out, const View& in) {
  const std::int64_t rows = in.size(0), n = in.size(1), inner = in.size(2);
  if (inner != 1) return for_each_index(context, rows * inner, SoftmaxLine<T, kLog>{out.ptr<T>(), in.ptr<T>(), n, inner});
  if (n > 1024) {
    softmax_block_kernel<T, kLog><<<blocks_for(rows, 1), kThreads, 0, stream_of(context)>>>(out.ptr<T>(), in.ptr<T>(), rows, n);
    return check_launch(context);
  }
  with_row_shape<T>(static_cast<int>(n), aligned16(in.data) && aligned16(out.data), [&](auto width, auto packs) {
    softmax_warp_kernel<T, decltype(width)::value, decltype(packs)::value, kLog>
        <<<blocks_for(rows, kThreads / 32), kThreads, 0, stream_of(context)>>>(out.ptr<T>(), in.ptr<T>(), rows, static_cast<int>(n));
  });
  check_launch(context);
}

template <class T, bool kLog> void backward(const Context& context, const View& grad_in, const View& grad_out, const View& result) {
  const std::int64_t rows = result.size(0), n = result.size(1), inner = result.size(2);
  T* to = grad_in.ptr<T>();
  const T *g = grad_out.ptr<T>(), *y = result.ptr<T>();
  if (inner != 1) return for_each_index(context, rows * inner, SoftmaxBackwardLine<T, kLog>{to, g, y, n, inner});
  if (n > 1024) {
    softmax_backward_block_kernel<T, kLog><<<blocks_for(rows, 1), kThreads, 0, stream_of(context)>>>(to, g, y, rows, n);
    return check_launch(context);
  }
  with_row_shape<T>(static_cast<int>(n), aligned16(to) && aligned16(g) && aligned16(y), [&](auto width, auto packs) {
    softmax_backward_warp_kernel<T, decltype(width)::value, decltype(packs)::value, kLog>
        <<<blocks_for(rows, kThreads / 32), kThreads, 0, stream_of(context)>>>(to, g, y, rows, static_cast<int>(n));
  });
  check_launch(context);
}

}  // namespace

void softmax(const Context& context, const View& out, const View& in, bool log) {
  if (in.numel() == 0) return;
  dispatch_floating(context, in.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    log ? forward<T, true>(context, out, in) : forward<T, false>(context, out, in);
  });
}

void softmax_backward(const Context& context, const View& grad_in, const View& grad_out, const View& result, bool log) {
  if (result.numel() == 0) return;
  dispatch_floating(context, result.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    log ? backward<T, true>(context, grad_in, grad_out, result) : backward<T, false>(context, grad_in, grad_out, result);
  });
}

}  // namespace tensorlite::cuda
