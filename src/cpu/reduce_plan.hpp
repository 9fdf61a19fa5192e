// How a reduction is cut into pieces. The cuts depend on sizes and strides alone, never on the number of threads.
#pragma once

#include "dispatch.hpp"
#include "runs.hpp"

#include <bit>

namespace tensorlite::cpu::TL_CPU_NS {

inline constexpr std::int64_t kReduceTile = 512;     ///< outputs worked on together
inline constexpr std::int64_t kReducePiece = 4096;   ///< contiguous elements summed in float before the sum goes on in double
inline constexpr std::int64_t kReduceFlush = 128;    ///< rows summed in float, column by column, before that
inline constexpr std::int64_t kReduceChunk = 65536;  ///< elements of one parallel step, small enough to be read twice from cache

/// The kept axes in the order of the output (`kept`: views out, in; a tile of outputs lies along the last one) and the reduced ones.
struct ReducePlan {
  Loop<2> kept;
  Loop<1> reduced;
  bool by_columns = false;  ///< neighbours in memory belong to different outputs
  std::int64_t tile = 1;    ///< outputs per tile
  std::int64_t tiles_per_row = 1, tiles = 1;
  std::int64_t chunk = 1, chunks = 1;  ///< reduced elements per chunk
};

/// `count` outputs, from these element offsets on, a stride apart.
struct ReduceTile {
  std::int64_t out_offset, in_offset, out_stride, in_stride, count;
};

namespace plan_detail {

inline View with_axes(const View& view, std::uint32_t axes) {
  View part = view;
  part.sizes = part.strides = Dims();
  for (int i = 0; i < view.dim(); ++i) {
    if (!(axes >> i & 1u)) continue;
    part.sizes.push_back(view.size(i));
    part.strides.push_back(view.stride(i));
  }
  return part;
}

/// Index of the axis with the smallest stride that moves; the last one when none does.
template <int N> int fastest_axis(const Loop<N>& loop, int view) {
  int best = loop.sizes.size() - 1;
  for (int i = 0; i < loop.sizes.size(); ++i) {
    const std::int64_t stride = std::abs(loop.strides[view][i]), current = std::abs(loop.strides[view][best]);
    if (stride != 0 && loop.sizes[i] > 1 && (current == 0 || loop.sizes[best] == 1 || stride < current)) best = i;
  }
  return best;
}

template <int N> void move_last(Loop<N>& loop, int axis) {
  for (int i = axis; i + 1 < loop.sizes.size(); ++i) {
    std::swap(loop.sizes[i], loop.sizes[i + 1]);
    for (auto& s : loop.strides) std::swap(s[i], s[i + 1]);
  }
}

}  // namespace plan_detail

/// Neither `in` nor its set of reduced axes may be empty of elements. out: dense, size 1 on the reduced axes.
inline ReducePlan make_reduce_plan(const View& out, const View& in, std::uint32_t axes) {
  using namespace plan_detail;
  ReducePlan plan;
  View out_kept = out;
  out_kept.strides = contiguous_strides(out.sizes);
  plan.kept = make_loop(with_axes(out_kept, ~axes), with_axes(in, ~axes));
  plan.reduced = make_loop(with_axes(in, axes));
  const int kept = fastest_axis(plan.kept, 1), run = plan.reduced.sizes.size() - 1;
  const std::int64_t kept_stride = std::abs(plan.kept.strides[1][kept]), width = plan.kept.sizes[kept];
  const std::int64_t run_stride = std::abs(plan.reduced.strides[0][run]);
  // A narrow kept axis pays only when rows follow each other without a gap.
  plan.by_columns = width > 1 && kept_stride != 0 && (run_stride == 0 || kept_stride < run_stride) &&
                    (width >= 16 || (kept_stride == 1 && plan.reduced.strides[0][run] == width));
  if (plan.by_columns) move_last(plan.kept, kept);

  const std::int64_t total = plan.reduced.numel, last = plan.kept.sizes.back();
  plan.tile = std::min(last, plan.by_columns ? kReduceTile : std::clamp<std::int64_t>(kReduceChunk / 2 / total, 1, kReduceTile));
  plan.tiles_per_row = (last - 1) / plan.tile + 1;
  plan.tiles = plan.kept.numel / last * plan.tiles_per_row;
  plan.chunk = std::max(kReduceFlush, kReduceChunk / plan.tile);
  plan.chunks = (total - 1) / plan.chunk + 1;
  return plan;
}

inline ReduceTile tile_at(const ReducePlan& plan, std::int64_t index) {
  const int last = plan.kept.sizes.size() - 1;
  const auto& [out_strides, in_strides] = plan.kept.strides;
  const std::int64_t begin = index % plan.tiles_per_row * plan.tile;
  ReduceTile tile{begin * out_strides[last], begin * in_strides[last], out_strides[last], in_strides[last],
                  std::min(plan.tile, plan.kept.sizes[last] - begin)};
  std::int64_t rest = index / plan.tiles_per_row;
  for (int axis = last - 1; axis >= 0; --axis) {
    const std::int64_t at = rest % plan.kept.sizes[axis];
    rest /= plan.kept.sizes[axis];
    tile.out_offset += at * out_strides[axis];
    tile.in_offset += at * in_strides[axis];
  }
  return tile;
}

}  // namespace tensorlite::cpu::TL_CPU_NS
