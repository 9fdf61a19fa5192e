// Reductions as an accumulator and a source of values. A row reduction has the values of one result side by side, a column reduction
// those of neighbouring results. Long ones are split over blocks whose partial results are merged in a fixed order: no atomics, the same
// bits in every run.
//
//   Accumulator: default-constructed empty; merge(const Accumulator&).
//   Source:      Line line(result); Loaded load(Line, i); void add(Accumulator&, const Loaded&, i).
//   Finish:      operator()(result, const Accumulator&) stores.
#pragma once

#include "launch.cuh"

namespace tensorlite::cuda {

inline constexpr int kReduceUnroll = 4;
inline constexpr int kReduceBlocks = 4;  ///< of a multiprocessor at once: their loads in flight are more than memory needs

template <class A> __device__ A shuffle_down(const A& value, int distance, int width) {
  static_assert(sizeof(A) % 4 == 0 && std::is_trivially_copyable_v<A>);
  A other;
  unsigned words[sizeof(A) / 4];
  memcpy(words, &value, sizeof(A));
  for (unsigned& word : words) word = __shfl_down_sync(0xffffffffu, word, distance, width);
  memcpy(&other, words, sizeof(A));
  return other;
}

/// Merges the accumulators of a warp; lane 0 has the result.
template <class A> __device__ A merge_warp(A value) {
  for (int distance = 16; distance > 0; distance /= 2) value.merge(shuffle_down(value, distance, 32));
  return value;
}
/// Merges the accumulators of a block of kThreads; thread 0 has the result.
template <class A> __device__ A merge_block(A value) {
  __shared__ alignas(16) unsigned char memory[kThreads / 32 * sizeof(A)];
  A* warps = reinterpret_cast<A*>(memory);
  value = merge_warp(value);
  __syncthreads();
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x == 0)
    for (int i = 1; i < kThreads / 32; ++i) value.merge(warps[i]);
  return value;
}

/// How a reduction is cut into pieces: `splits` per result, of `length` items each.
struct Split {
  std::int64_t results = 0, items = 0, splits = 1, length = 0;
};

/// The accumulators of V neighbouring results.
template <class A, int V> struct Lanes {
  A lane[V];
  __device__ void merge(const Lanes& o) {
#pragma unroll
    for (int j = 0; j < V; ++j) lane[j].merge(o.lane[j]);
  }
};

/// Accumulators that a thread fills in turn, so that one addition need not wait for the one before.
template <class A> inline constexpr int kChains = kReduceUnroll;
template <class A, int V> inline constexpr int kChains<Lanes<A, V>> = 1;

/// Adds items first, first + step, ... below `end` of one line.
template <class A, class Source, class Line>
__device__ A accumulate(const Source& source, const Line& line, std::int64_t first, std::int64_t end, std::int64_t step) {
  constexpr int chains = kChains<A>;
  A parts[chains];
  std::int64_t i = first;
  for (; i + (kReduceUnroll - 1) * step < end; i += kReduceUnroll * step) {
    decltype(source.load(line, i)) loaded[kReduceUnroll];
#pragma unroll
    for (int u = 0; u < kReduceUnroll; ++u) loaded[u] = source.load(line, i + u * step);
#pragma unroll
    for (int u = 0; u < kReduceUnroll; ++u) source.add(parts[u % chains], loaded[u], i + u * step);
  }
  for (; i < end; i += step) source.add(parts[0], source.load(line, i), i);
#pragma unroll
  for (int u = 1; u < chains; ++u) parts[0].merge(parts[u]);
  return parts[0];
}

/// `group` threads (1, 32 or kThreads) make one piece.
template <class A, class Source, class Finish>
__global__ void __launch_bounds__(kThreads, kReduceBlocks)
    row_kernel(const __grid_constant__ Source source, const Finish finish, const Split split, int group, A* partial) {
  const std::int64_t pieces = split.results * split.splits, per_block = kThreads / group;
  const int lane = threadIdx.x % group;
  for (std::int64_t first = blockIdx.x * per_block; first < pieces; first += gridDim.x * per_block) {
    const std::int64_t piece = first + threadIdx.x / group;
    A sum;
    if (piece < pieces) {
      const std::int64_t result = piece / split.splits, begin = piece % split.splits * split.length;
      sum = accumulate<A>(source, source.line(result), begin + lane, min(begin + split.length, split.items), group);
    }
    if (group == 32) sum = merge_warp(sum);
    else if (group == kThreads) sum = merge_block(sum);
    if (lane != 0 || piece >= pieces) continue;
    if (partial) partial[piece] = sum;
    else finish(piece, sum);
  }
}

/// blockDim.x neighbouring packs of V results, blockDim.y items of each at a time; `split` counts packs.
template <class A, int V, class Source, class Finish>
__global__ void __launch_bounds__(kThreads, kReduceBlocks)
    column_kernel(const __grid_constant__ Source source, const Finish finish, const Split split, A* partial) {
  using Sums = std::conditional_t<V == 1, A, Lanes<A, V>>;
  __shared__ alignas(16) unsigned char memory[kThreads * sizeof(Sums)];
  Sums* parts = reinterpret_cast<Sums*>(memory);
  const std::int64_t columns = (split.results + blockDim.x - 1) / blockDim.x, pieces = columns * split.splits;
  for (std::int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    const std::int64_t result = piece / split.splits * blockDim.x + threadIdx.x, part = piece % split.splits;
    const std::int64_t begin = part * split.length;
    Sums sum;
    if (result < split.results)
      sum = accumulate<Sums>(source, source.line(result), begin + threadIdx.y, min(begin + split.length, split.items), blockDim.y);
    __syncthreads();
    parts[threadIdx.y * blockDim.x + threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || result >= split.results) continue;
    for (unsigned y = 1; y < blockDim.y; ++y) sum.merge(parts[y * blockDim.x + threadIdx.x]);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const A& lane = reinterpret_cast<const A*>(&sum)[j];
      if (partial) partial[(result * V + j) * split.splits + part] = lane;
      else finish(result * V + j, lane);
    }
  }
}

/// The source of the second pass: the partial results of the first.
template <class A> struct Partials {
  const A* data;
  std::int64_t splits;
  __device__ const A* line(std::int64_t result) const { return data + result * splits; }
  __device__ A load(const A* line, std::int64_t i) const { return line[i]; }
  __device__ void add(A& sum, const A& value, std::int64_t) const { sum.merge(value); }
};

/// Cuts so that all blocks run at once, pieces of at least `least` items.
inline Split cut(const Context& context, std::int64_t results, std::int64_t items, std::int64_t blocks, std::int64_t least) {
  const std::int64_t wanted = std::int64_t(limits_of(context).multiprocessors) * kReduceBlocks;
  const std::int64_t most = std::min<std::int64_t>(std::max<std::int64_t>(items / least, 1), 1024);
  Split split{.results = results, .items = items};
  split.splits = std::clamp<std::int64_t>(wanted / std::max<std::int64_t>(blocks, 1), 1, most);
  split.length = (items + split.splits - 1) / split.splits;
  if (split.length > 0) split.splits = std::max<std::int64_t>((items + split.length - 1) / split.length, 1);
  return split;
}

/// Threads that make one of `pieces` pieces of `length` items: few pieces get a block each.
inline int group_for(const Context& context, std::int64_t pieces, std::int64_t length) {
  if (length <= 16) return 1;
  const bool few = pieces < std::int64_t(limits_of(context).multiprocessors) * kReduceBlocks;
  return length <= (few ? 64 : 1024) ? 32 : kThreads;
}

template <class A, class Source, class Finish>
void launch_rows(const Context& context, const Source& source, const Finish& finish, const Split& split, A* partial) {
  const int group = group_for(context, split.results * split.splits, split.length);
  const unsigned blocks = blocks_for(split.results * split.splits, kThreads / group);
  row_kernel<A><<<blocks, kThreads, 0, stream_of(context)>>>(source, finish, split, group, partial);
  check_launch(context);
}

template <class A, class Finish> void merge_partials(const Context& context, const A* partial, const Finish& finish, const Split& split) {
  const Split merge{.results = split.results, .items = split.splits, .splits = 1, .length = split.splits};
  launch_rows<A>(context, Partials<A>{partial, split.splits}, finish, merge, static_cast<A*>(nullptr));
}

/// Reduces `items` loads per result; `results` of them.
template <class A, class Source, class Finish>
void reduce_rows(const Context& context, std::int64_t results, std::int64_t items, const Source& source, const Finish& finish) {
  if (results == 0) return;
  const std::int64_t group = group_for(context, results, items);
  const Split split = cut(context, results, items, results * group / kThreads, 4 * kReduceUnroll * kThreads);
  if (split.splits == 1) return launch_rows<A>(context, source, finish, split, static_cast<A*>(nullptr));
  const Workspace partial(context, static_cast<std::size_t>(results * split.splits) * sizeof(A));
  launch_rows<A>(context, source, finish, split, partial.data<A>());
  merge_partials(context, partial.data<A>(), finish, split);
}

/// The same where the loads of neighbouring packs of V results are side by side; source.line() and load() go by packs.
template <class A, int V = 1, class Source, class Finish>
void reduce_columns(const Context& context, std::int64_t packs, std::int64_t items, const Source& source, const Finish& finish) {
  if (packs == 0) return;
  unsigned width = 1;
  while (width < 32 && width < packs) width *= 2;
  const dim3 threads(width, kThreads / width);
  const std::int64_t columns = (packs + width - 1) / width;
  Split split = cut(context, packs, items, columns, 2 * kReduceUnroll * threads.y);
  const Workspace partial(context, split.splits == 1 ? 0 : static_cast<std::size_t>(packs * V * split.splits) * sizeof(A));
  column_kernel<A, V><<<blocks_for(columns * split.splits, 1), threads, 0, stream_of(context)>>>(source, finish, split, partial.data<A>());
  check_launch(context);
  split.results *= V;
  if (split.splits > 1) merge_partials(context, partial.data<A>(), finish, split);
}

}  // namespace tensorlite::cuda
