// Our own matrix product over any source of elements: 64 x 64 results per block through shared memory, 4 x 4 per thread. For integers, and
// where the vendor's libraries are missing or refuse.
//
//   Problem: batches, m, n, k; C a(batch, row, depth); C b(batch, depth, column); void put(batch, row, column, C value, split).
#pragma once

#include "launch.cuh"
#include "numeric.cuh"

namespace tensorlite::cuda {

inline constexpr int kTileRows = 64, kTileColumns = 64, kTileDepth = 16, kPerThread = 4;

/// The depth is cut into `splits` parts of `length`, each with results of its own (put's `split`).
template <class C, class Problem>
__global__ void __launch_bounds__(kThreads) tile_gemm_kernel(const __grid_constant__ Problem p, std::int64_t splits, std::int64_t length) {
  __shared__ C tile_a[kTileDepth][kTileRows + 1], tile_b[kTileDepth][kTileColumns];
  const std::int64_t tiles_m = (p.m + kTileRows - 1) / kTileRows, tiles_n = (p.n + kTileColumns - 1) / kTileColumns;
  const std::int64_t tiles = p.batches * tiles_m * tiles_n * splits;
  const int row = threadIdx.x / 16, column = threadIdx.x % 16;
  for (std::int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const std::int64_t split = tile % splits, n0 = tile / splits % tiles_n * kTileColumns,
                       m0 = tile / splits / tiles_n % tiles_m * kTileRows;
    const std::int64_t batch = tile / splits / tiles_n / tiles_m, end = min((split + 1) * length, p.k);
    C sum[kPerThread][kPerThread] = {};
    for (std::int64_t k0 = split * length; k0 < end; k0 += kTileDepth) {
      __syncthreads();
      for (int i = threadIdx.x; i < kTileRows * kTileDepth; i += kThreads) {
        const std::int64_t im = m0 + i / kTileDepth, ik = k0 + i % kTileDepth;
        tile_a[i % kTileDepth][i / kTileDepth] = im < p.m && ik < end ? p.a(batch, im, ik) : C(0);
        const std::int64_t jk = k0 + i / kTileColumns, jn = n0 + i % kTileColumns;
        tile_b[i / kTileColumns][i % kTileColumns] = jk < end && jn < p.n ? p.b(batch, jk, jn) : C(0);
      }
      __syncthreads();
#pragma unroll
      for (int d = 0; d < kTileDepth; ++d)
#pragma unroll
        for (int i = 0; i < kPerThread; ++i)
#pragma unroll
          for (int j = 0; j < kPerThread; ++j) sum[i][j] += tile_a[d][row + 16 * i] * tile_b[d][column + 16 * j];
    }
#pragma unroll
    for (int i = 0; i < kPerThread; ++i)
#pragma unroll
      for (int j = 0; j < kPerThread; ++j) {
        const std::int64_t im = m0 + row + 16 * i, jn = n0 + column + 16 * j;
        if (im < p.m && jn < p.n) p.put(batch, im, jn, sum[i][j], split);
      }
  }
}

inline std::int64_t tiles_of(std::int64_t batches, std::int64_t m, std::int64_t n) {
  return batches * ((m + kTileRows - 1) / kTileRows) * ((n + kTileColumns - 1) / kTileColumns);
}

template <class C, class Problem> void tile_gemm(const Context& context, const Problem& problem, std::int64_t splits = 1) {
  const std::int64_t tiles = tiles_of(problem.batches, problem.m, problem.n) * splits;
  if (tiles == 0) return;
  const std::int64_t length = (problem.k + splits * kTileDepth - 1) / (splits * kTileDepth) * kTileDepth;
  tile_gemm_kernel<C><<<blocks_for(tiles, 1), kThreads, 0, stream_of(context)>>>(problem, splits, length);
  check_launch(context);
}

}  // namespace tensorlite::cuda
