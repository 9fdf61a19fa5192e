// arg_reduce and cumsum: along one axis.
#include "kernels.hpp"
#include "reduce_steps.hpp"

namespace tensorlite::cpu::TL_CPU_NS {
namespace {

using namespace reduce_ops;

// ------------------------------------------------------------------------------------------------------------------ arg_reduce

/// Best value so far of each output of a tile, and where it stands.
template <class T> struct Best {
  T value[kReduceTile];
  std::int64_t index[kReduceTile];
};

/// Whether x takes the place of `best`, which stands before it: it is better, or the first NaN. Op: Max or Min.
template <class Op, class T> bool beats(T x, T best) {
  if constexpr (std::is_same_v<Op, Max>) return best == best && !(x <= best);
  else return best == best && !(x >= best);
}

/// First position of the winner among contiguous elements: the winning value piece by piece, then a search in the piece it is in.
template <class T, class Op> void find_in_row(const T* from, std::int64_t count, std::int64_t start, T& value, std::int64_t& index) {
  const T winner = static_cast<T>(reduce_piece<T, Op>(from, count, T(0)));
  if (start > 0 && !beats<Op>(winner, value)) return;
  std::int64_t i = 0;
  auto wins = [&](std::int64_t at) { return int((from[at] == winner) | (from[at] != from[at])); };
  for (; i + 64 <= count; i += 64) {  // whole vectors first: the loop below leaves at the first hit
    int hits = 0;
    for (int k = 0; k < 64; ++k) hits += wins(i + k);
    if (hits) break;
  }
  while (!wins(i)) ++i;
  value = winner;
  index = start + i;
}

template <class T, class Op>
void find_by_rows(const ReducePlan& plan, const Source<T>& source, const ReduceTile& tile, std::int64_t begin, std::int64_t end,
                  Best<T>& best) {
  const std::int64_t stride = plan.reduced.inner_stride(0);
  T buffer[kReducePiece];
  for (std::int64_t o = 0; o < tile.count; ++o)
    for (std::int64_t at = begin; at < end; at += kReducePiece) {
      const std::int64_t piece = std::min(kReducePiece, end - at);
      const T* from = source.run(tile.in_offset + o * tile.in_stride + at * stride, stride, piece, buffer);
      find_in_row<T, Op>(from, piece, at - begin, best.value[o], best.index[o]);
    }
  for (std::int64_t o = 0; o < tile.count; ++o) best.index[o] += begin;
}

template <class T, class Op>
void find_by_columns(const ReducePlan& plan, const Source<T>& source, const ReduceTile& tile, std::int64_t begin, std::int64_t end,
                     Best<T>& best) {
  const std::int64_t stride = plan.reduced.inner_stride(0);
  T buffer[kReduceTile];
  source.copy(best.value, tile.in_offset + begin * stride, tile.in_stride, tile.count);
  std::fill_n(best.index, tile.count, begin);
  for (std::int64_t r = begin + 1; r < end; ++r) {
    const T* row = source.run(tile.in_offset + r * stride, tile.in_stride, tile.count, buffer);
    for (std::int64_t j = 0; j < tile.count; ++j) {
      const bool better = beats<Op>(row[j], best.value[j]);
      best.value[j] = better ? row[j] : best.value[j];
      best.index[j] = better ? r : best.index[j];
    }
  }
}

template <class T, class Op> void arg_reduce_of(const Context& context, const View& out, const View& in, int axis) {
  const ReducePlan plan = make_reduce_plan(out, in, 1u << axis);
  const Source<T> source(in);
  // The winner does not depend on where the axis is cut, so the cut may follow the number of threads.
  const std::int64_t n = plan.reduced.numel, parts = plan.tiles >= num_threads() ? 1 : std::min<std::int64_t>(plan.chunks, num_threads());
  auto find = [&](std::int64_t item, Best<T>& best) {
    const ReduceTile tile = tile_at(plan, item / parts);
    const std::int64_t part = item % parts, begin = n * part / parts, end = n * (part + 1) / parts;
    if (plan.by_columns) find_by_columns<T, Op>(plan, source, tile, begin, end, best);
    else find_by_rows<T, Op>(plan, source, tile, begin, end, best);
  };
  auto keep = [&](std::int64_t t, const Best<T>& best) {
    const ReduceTile tile = tile_at(plan, t);
    for (std::int64_t j = 0; j < tile.count; ++j) out.ptr<std::int64_t>()[tile.out_offset + j * tile.out_stride] = best.index[j];
  };
  if (parts == 1) {
    parallel_for(plan.tiles, std::max<std::int64_t>(1, kReduceChunk / 2 / (plan.tile * n)), [&](std::int64_t begin, std::int64_t end) {
      Best<T> best;
      for (std::int64_t t = begin; t < end; ++t) find(t, best), keep(t, best);
    });
    return;
  }
  Workspace space(context, static_cast<std::size_t>(plan.tiles * parts) * sizeof(Best<T>));
  Best<T>* found = space.data<Best<T>>();
  parallel_for(plan.tiles * parts, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t item = begin; item < end; ++item) find(item, found[item]);
  });
  for (std::int64_t t = 0; t < plan.tiles; ++t) {
    Best<T>& best = found[t * parts];
    for (const Best<T>* next = &best + 1; next < &best + parts; ++next)
      for (std::int64_t j = 0; j < tile_at(plan, t).count; ++j) {
        if (!beats<Op>(next->value[j], best.value[j])) continue;
        best.value[j] = next->value[j];
        best.index[j] = next->index[j];
      }
    keep(t, best);
  }
}

// ---------------------------------------------------------------------------------------------------------------------- cumsum

/// Sums are kept in double (int64 for integers).
template <class T> void cumsum_of(const View& out, const View& in, int axis) {
  using Acc = AccType<T>;
  constexpr std::int64_t kWidth = 1024;
  View dense = out;
  dense.strides = contiguous_strides(out.sizes);
  const std::uint32_t others = ~(1u << axis);
  const Loop<2> lines = make_loop(plan_detail::with_axes(dense, others), plan_detail::with_axes(in, others));
  const std::int64_t n = in.size(axis), along_in = in.stride(axis), along_out = dense.stride(axis);
  const Source<T> source(in);
  const Sink<Acc> sink(out);
  const std::int64_t out_stride = lines.inner_stride(0), in_stride = lines.inner_stride(1);
  parallel_for(lines.numel, std::max<std::int64_t>(1, kReduceChunk / 4 / n), [&](std::int64_t begin, std::int64_t end) {
    T values[kWidth];
    Acc sums[kWidth];
    for_each_run(lines, begin, end, [&](const auto& offsets, std::int64_t, std::int64_t count) {
      if (along_out == 1) {  // lines lie along memory: one after the other
        for (std::int64_t line = 0; line < count; ++line) {
          Acc sum = 0;
          for (std::int64_t done = 0; done < n; done += kWidth) {
            const std::int64_t piece = std::min(kWidth, n - done);
            const T* from = source.run(offsets[1] + line * in_stride + done * along_in, along_in, piece, values);
            for (std::int64_t i = 0; i < piece; ++i) sums[i] = sum += static_cast<Acc>(from[i]);
            sink.store(offsets[0] + line * out_stride + done, 1, sums, piece);
          }
        }
        return;
      }
      for (std::int64_t first = 0; first < count; first += kWidth) {
        const std::int64_t width = std::min(kWidth, count - first);
        std::fill_n(sums, width, Acc(0));
        for (std::int64_t i = 0; i < n; ++i) {
          const T* from = source.run(offsets[1] + first * in_stride + i * along_in, in_stride, width, values);
          for (std::int64_t j = 0; j < width; ++j) sums[j] += static_cast<Acc>(from[j]);
          sink.store(offsets[0] + first * out_stride + i * along_out, out_stride, sums, width);
        }
      }
    });
  });
}

}  // namespace

void arg_reduce(const Context& context, ArgOp op, const View& out, const View& in, int axis) {
  if (out.numel() == 0) return;
  TL_CHECK(in.size(axis) > 0, ValueError, context.op, "axis ", axis, " of ", in.sizes, " is empty: it has no largest or smallest element");
  auto run = [&]<class T>(T) {
    if (op == ArgOp::argmax) arg_reduce_of<T, Max>(context, out, in, axis);
    else arg_reduce_of<T, Min>(context, out, in, axis);
  };
  if (in.dtype == DType::float64) run(double{});
  else if (is_floating(in.dtype)) run(float{});
  else run(std::int64_t{});
}

void cumsum(const Context&, const View& out, const View& in, int axis) {
  if (out.numel() == 0) return;
  if (in.dtype == DType::float64) cumsum_of<double>(out, in, axis);
  else if (is_floating(in.dtype)) cumsum_of<float>(out, in, axis);
  else cumsum_of<std::int64_t>(out, in, axis);
}

}  // namespace tensorlite::cpu::TL_CPU_NS
