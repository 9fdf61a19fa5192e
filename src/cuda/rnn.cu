// Recurrent layers and their gradients: one launch for all steps and directions of a layer, one block per tile of samples.
#include "launch.cuh"
#include "numeric.cuh"
#include "position_flag.hpp"
#include "rnn_tile.hpp"

namespace tensorlite::cuda {
namespace {

constexpr int kMaxLanes = 512, kTileRows = 4;

struct BlockLanes {
  template <class F> __device__ void each(int count, const F& f) const {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) f(i);
    __syncthreads();
  }
};

/// A tile's steps in both directions.
template <class Tile> struct BothDirections { Tile tile[2]; };

template <class Tile, int kRows>
__global__ void __launch_bounds__(kMaxLanes) tile_kernel(const __grid_constant__ BothDirections<Tile> both) {
  extern __shared__ __align__(16) unsigned char memory[];
  Tile tile = both.tile[blockIdx.y];
  tile.first = static_cast<std::int64_t>(blockIdx.x) * kRows;
  tile.run(BlockLanes{}, reinterpret_cast<typename Tile::Column*>(memory));
}

template <class Tile, int kRows> std::size_t shared_bytes(int hidden) {
  return static_cast<std::size_t>(Tile::columns(hidden)) * sizeof(typename Tile::Column);
}

template <class Tile, int kRows> void launch(const Context& context, const BothDirections<Tile>& both, std::int64_t directions) {
  const TileSizes& sizes = both.tile[0].sizes;
  const std::size_t bytes = shared_bytes<Tile, kRows>(sizes.hidden);
  const int lanes = std::min(kMaxLanes, (Tile::kGates * sizes.hidden + 31) / 32 * 32);
  const dim3 grid(static_cast<unsigned>((sizes.batch + kRows - 1) / kRows), static_cast<unsigned>(directions));
  allow_shared_memory(context, &tile_kernel<Tile, kRows>, bytes);
  tile_kernel<Tile, kRows><<<grid, lanes, bytes, stream_of(context)>>>(both);
  check_launch(context);
}

/// Calls f(tile of several samples) where its fast memory suffices, else f(tile of one).
template <template <class, class, int> class Tile, class Cell, class T, class F>
void choose_rows(const Context& context, int hidden, const F& f) {
  const auto limit = static_cast<std::size_t>(limits_of(context).max_shared_memory);
  if (shared_bytes<Tile<Cell, T, kTileRows>, kTileRows>(hidden) <= limit) return f(std::integral_constant<int, kTileRows>{});
  const std::size_t needed = shared_bytes<Tile<Cell, T, 1>, 1>(hidden);
  if (needed > limit)
    throw NotImplementedError(
        context.op, detail::concat("a hidden size of ", hidden, " needs ", static_cast<std::int64_t>(needed), " B of shared memory, ",
                                   context.device, " has ", static_cast<std::int64_t>(limit), "; use a smaller one or the CPU"));
  f(std::integral_constant<int, 1>{});
}

template <class T> StepRows<T> rows_of(const View& view) {
  if (!view) return {};
  return {view.ptr<std::remove_const_t<T>>(), view.stride(0), view.stride(1)};
}
/// Of one direction of [D, steps, N, width].
template <class T> StepRows<T> rows_of(const View& view, std::int64_t direction) {
  if (!view) return {};
  return {view.ptr<std::remove_const_t<T>>() + direction * view.stride(0), view.stride(1), view.stride(2)};
}
template <class T> StepRows<T> shifted(StepRows<T> rows, std::int64_t by) {
  if (rows.data) rows.data += by;
  return rows;
}
template <class T> T* part(const View& view, std::int64_t offset) { return view ? view.ptr<std::remove_const_t<T>>() + offset : nullptr; }

void check_lengths(const Context& context, const View& lengths, std::int64_t steps) {
  if (!lengths || lengths.numel() == 0) return;
  const PositionFlag flag(context);
  const std::int64_t* all = lengths.ptr<std::int64_t>();
  unsigned long long* bad = flag.device();
  for_each_index(context, lengths.numel(), [=] __device__(std::int64_t n) {
    if (all[n] < 0 || all[n] > steps) report_position(bad, n);
  });
  const std::int64_t n = flag.first();
  TL_CHECK(n < 0, ValueError, context.op, "length ", flag.value_at(all + std::max<std::int64_t>(n, 0)), " of sample ", n, " is outside 0..",
           steps);
}

template <class T> void start(const Context& context, const View& state, const View& from) {
  if (!state) return;
  if (from) copy(context, state, from);
  else fill(context, state, Scalar(0));
}

template <class Cell, class T>
void forward(const Context& context, const View& out, const View& h_n, const View& c_n, const View& kept, std::span<const View> x,
             std::span<const View> w_hh, std::span<const View> b_hh, const View& h0, const View& c0, const View& lengths) {
  const std::int64_t directions = h_n.size(0), batch = h_n.size(1), hidden = h_n.size(2), width = Cell::kGates * hidden;
  check_lengths(context, lengths, out.size(0));
  if (out.numel() == 0) return start<T>(context, h_n, h0), start<T>(context, c_n, c0);
  const Workspace memory(context, sizeof(T) * static_cast<std::size_t>(directions * width * hidden));
  for (std::int64_t d = 0; d < directions; ++d) {
    const View& w = w_hh[static_cast<std::size_t>(d)];
    copy(context, View(memory.data<T>() + d * width * hidden, w.dtype, w.device, {hidden, width}, {width, 1}),
         View(w.data, w.dtype, w.device, {hidden, width}, {1, hidden}));
  }
  choose_rows<RnnTileForward, Cell, T>(context, static_cast<int>(hidden), [&](auto rows) {
    using Tile = RnnTileForward<Cell, T, rows.value>;
    BothDirections<Tile> both = {};
    for (std::int64_t d = 0; d < directions; ++d) {
      Tile& tile = both.tile[d];
      const std::int64_t state = d * batch * hidden;
      tile.sizes = {out.size(0), batch, static_cast<int>(hidden), part<const std::int64_t>(lengths, 0)};
      tile.from_the_end = d == 1;
      tile.weights = memory.data<T>() + d * width * hidden;
      tile.bias = part<const T>(b_hh[static_cast<std::size_t>(d)], 0);
      tile.x = rows_of<const T>(x[static_cast<std::size_t>(d)]);
      tile.out = shifted(rows_of<T>(out), d * hidden);
      tile.kept = rows_of<T>(kept, d);
      tile.h0 = part<const T>(h0, state), tile.c0 = part<const T>(c0, state);
      tile.h_n = part<T>(h_n, state), tile.c_n = part<T>(c_n, state);
    }
    launch<Tile, rows.value>(context, both, directions);
  });
}

template <class Cell, class T>
void backward(const Context& context, const View& grad_x, const View& grad_r, const View& grad_h0, const View& grad_c0,
              const View& grad_out, const View& grad_h_n, const View& grad_c_n, const View& kept, std::span<const View> w_hh,
              const View& lengths) {
  const std::int64_t directions = kept.size(0), batch = kept.size(2), hidden = w_hh[0].size(1);
  if (grad_x.numel() == 0) return start<T>(context, grad_h0, grad_h_n), start<T>(context, grad_c0, grad_c_n);
  choose_rows<RnnTileBackward, Cell, T>(context, static_cast<int>(hidden), [&](auto rows) {
    using Tile = RnnTileBackward<Cell, T, rows.value>;
    BothDirections<Tile> both = {};
    for (std::int64_t d = 0; d < directions; ++d) {
      Tile& tile = both.tile[d];
      const std::int64_t state = d * batch * hidden;
      tile.sizes = {kept.size(1), batch, static_cast<int>(hidden), part<const std::int64_t>(lengths, 0)};
      tile.from_the_end = d == 1;
      tile.weights = part<const T>(w_hh[static_cast<std::size_t>(d)], 0);
      tile.grad_x = rows_of<T>(grad_x, d), tile.grad_r = rows_of<T>(grad_r, d);
      tile.grad_out = shifted(rows_of<const T>(grad_out), d * hidden), tile.kept = rows_of<const T>(kept, d);
      tile.grad_h_n = part<const T>(grad_h_n, state), tile.grad_c_n = part<const T>(grad_c_n, state);
      tile.grad_h0 = part<T>(grad_h0, state), tile.grad_c0 = part<T>(grad_c0, state);
    }
    launch<Tile, rows.value>(context, both, directions);
  });
}

/// Calls f(cell, type).
template <class F> void dispatch_layer(const Context& context, RnnKind kind, DType dtype, F&& f) {
  detail::with_rnn_cell(kind, [&](auto cell) {
    if (dtype == DType::float64) return f(cell, Type<double>{});
    if (dtype != DType::float32) throw NotImplementedError(context.op, detail::concat("not available for ", dtype));
    f(cell, Type<float>{});
  });
}

}  // namespace

void rnn(const Context& context, RnnKind kind, const View& out, const View& h_n, const View& c_n, const View& kept, std::span<const View> x,
         std::span<const View> w_hh, std::span<const View> b_hh, const View& h0, const View& c0, const View& lengths) {
  dispatch_layer(context, kind, out.dtype, [&](auto cell, auto type) {
    forward<decltype(cell), typename decltype(type)::type>(context, out, h_n, c_n, kept, x, w_hh, b_hh, h0, c0, lengths);
  });
}

void rnn_backward(const Context& context, RnnKind kind, const View& grad_x, const View& grad_r, const View& grad_h0, const View& grad_c0,
                  const View& grad_out, const View& grad_h_n, const View& grad_c_n, const View& kept, std::span<const View> w_hh,
                  const View& lengths) {
  dispatch_layer(context, kind, grad_x.dtype, [&](auto cell, auto type) {
    backward<decltype(cell), typename decltype(type)::type>(context, grad_x, grad_r, grad_h0, grad_c0, grad_out, grad_h_n, grad_c_n, kept,
                                                            w_hh, lengths);
  });
}

}  // namespace tensorlite::cuda
