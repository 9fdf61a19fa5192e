// Recurrent layers and their gradients: one launch for all steps and directions of a layer, one block per tile of samples; large states
// step by step.
#include "index_check.hpp"
#include "launch.cuh"
#include "numeric.cuh"
#include "rnn_steps.hpp"

namespace tensorlite::cuda {
namespace {

constexpr int kMaxLanes = 512, kTileRows = 4;
/// Units up to which a tile's steps, each of which reads all weights, cost less than a product for all samples and a launch for the cells.
constexpr std::int64_t kLargestTile = 256;

struct BlockLanes {
  template <class F> __device__ void each(int count, const F& f) const {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) f(i);
    __syncthreads();
  }
};

/// A tile's steps in both directions.
template <class Tile> struct BothDirections { Tile tile[2]; };

template <class Tile> __global__ void __launch_bounds__(kMaxLanes) tile_kernel(const __grid_constant__ BothDirections<Tile> both) {
  extern __shared__ __align__(32) unsigned char memory[];
  Tile tile = both.tile[blockIdx.y];
  tile.first = static_cast<std::int64_t>(blockIdx.x) * kTileRows;
  tile.run(BlockLanes{}, reinterpret_cast<typename Tile::Column*>(memory));
}

template <class Tile> void launch(const Context& context, const BothDirections<Tile>& both, std::int64_t directions) {
  const TileSizes& sizes = both.tile[0].sizes;
  const std::size_t bytes = static_cast<std::size_t>(Tile::columns(sizes.hidden)) * sizeof(typename Tile::Column);
  const int lanes = std::min(kMaxLanes, (Tile::kGates * sizes.hidden + 31) / 32 * 32);
  const dim3 grid(static_cast<unsigned>((sizes.batch + kTileRows - 1) / kTileRows), static_cast<unsigned>(directions));
  allow_shared_memory(context, &tile_kernel<Tile>, bytes);
  tile_kernel<Tile><<<grid, lanes, bytes, stream_of(context)>>>(both);
  check_launch(context);
}

/// Who takes a layer step by step.
struct StreamEngine {
  const Context& context;
  template <class F> void each(std::int64_t count, const F& f) const { for_each_index(context, count, f); }
  void multiply(const View& out, const View& a, const View& b) const { matmul(context, out, a, b, View(), Activation::none); }
};

/// The weights of all directions as [D, gates * H, H]: copied to `memory` where there are two.
View joined_weights(const Context& context, std::span<const View> w_hh, void* memory) {
  View all = w_hh[0];
  all.sizes.insert(0, static_cast<std::int64_t>(w_hh.size()));
  all.strides = contiguous_strides(all.sizes);
  if (w_hh.size() == 1) return all;
  all.data = memory;
  for (std::size_t d = 0; d < w_hh.size(); ++d) {
    View part = w_hh[d];
    part.data = static_cast<char*>(memory) + static_cast<std::int64_t>(d) * part.nbytes();
    copy(context, part, w_hh[d]);
  }
  return all;
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
  const auto raise = [](const IndexFailure& f) {
    throw ValueError(f.op, detail::concat("length ", f.value, " of sample ", f.position, " is outside 0..", f.numbers[0]));
  };
  const IndexCheck bounds = check_values(context, raise, {steps});
  const std::int64_t* all = lengths.ptr<std::int64_t>();
  for_each_index(context, lengths.numel(), [=] __device__(std::int64_t n) {
    if (all[n] < 0 || all[n] > steps) bounds.report(n, all[n]);
  });
}

void start(const Context& context, const View& state, const View& from) {
  if (!state) return;
  if (from) copy(context, state, from);
  else fill(context, state, Scalar(0));
}

/// What a layer's directions are made of; `weights` is left to the caller.
template <class Layer, class T>
void describe(Layer& layer, std::int64_t d, const View& out, const View& h_n, const View& c_n, const View& kept, std::span<const View> x,
              std::span<const View> b_hh, const View& h0, const View& c0, const View& lengths) {
  const std::int64_t batch = h_n.size(1), hidden = h_n.size(2), state = d * batch * hidden;
  layer.sizes = {out.size(0), batch, static_cast<int>(hidden), part<const std::int64_t>(lengths, 0)};
  layer.from_the_end = d == 1;
  layer.bias = part<const T>(b_hh[static_cast<std::size_t>(d)], 0);
  layer.x = rows_of<const T>(x[static_cast<std::size_t>(d)]);
  layer.out = shifted(rows_of<T>(out), d * hidden);
  layer.kept = rows_of<T>(kept, d);
  layer.h0 = part<const T>(h0, state), layer.c0 = part<const T>(c0, state);
  layer.h_n = part<T>(h_n, state), layer.c_n = part<T>(c_n, state);
}

template <class Cell, class T>
void forward(const Context& context, const View& out, const View& h_n, const View& c_n, const View& kept, std::span<const View> x,
             std::span<const View> w_hh, std::span<const View> b_hh, const View& h0, const View& c0, const View& lengths) {
  const std::int64_t directions = h_n.size(0), hidden = h_n.size(2), width = Cell::kGates * hidden;
  check_lengths(context, lengths, out.size(0));
  const bool by_steps = hidden > kLargestTile;
  if (by_steps || out.numel() == 0) start(context, h_n, h0), start(context, c_n, c0);
  if (out.numel() == 0) return;
  const Workspace memory(context, sizeof(T) * static_cast<std::size_t>(directions * width * hidden));
  if (by_steps) {
    const Workspace scratch(context, sizeof(T) * static_cast<std::size_t>(forward_scratch<Cell>(h_n)));
    ForwardLayer<Cell, T> layers[2] = {};
    for (std::int64_t d = 0; d < directions; ++d)
      describe<ForwardLayer<Cell, T>, T>(layers[d], d, out, h_n, c_n, kept, x, b_hh, h0, c0, lengths);
    return forward_by_steps<Cell, T>(StreamEngine{context}, layers, h_n, joined_weights(context, w_hh, memory.data()), scratch.data<T>());
  }
  using Tile = RnnTileForward<Cell, T, kTileRows>;
  BothDirections<Tile> both = {};
  for (std::int64_t d = 0; d < directions; ++d) {
    const View& w = w_hh[static_cast<std::size_t>(d)];
    T* turned = memory.data<T>() + d * width * hidden;
    copy(context, View(turned, w.dtype, w.device, {hidden, width}, {width, 1}),
         View(w.data, w.dtype, w.device, {hidden, width}, {1, hidden}));
    describe<Tile, T>(both.tile[d], d, out, h_n, c_n, kept, x, b_hh, h0, c0, lengths);
    both.tile[d].weights = turned;
  }
  launch(context, both, directions);
}

template <class Layer, class T>
void describe(Layer& layer, std::int64_t d, const View& grad_x, const View& grad_r, const View& grad_h0, const View& grad_c0,
              const View& grad_out, const View& grad_h_n, const View& grad_c_n, const View& kept, const View& lengths) {
  const std::int64_t batch = grad_h0.size(1), hidden = grad_h0.size(2), state = d * batch * hidden;
  layer.sizes = {kept.size(1), batch, static_cast<int>(hidden), part<const std::int64_t>(lengths, 0)};
  layer.from_the_end = d == 1;
  layer.grad_x = rows_of<T>(grad_x, d), layer.grad_r = rows_of<T>(grad_r, d);
  layer.grad_out = shifted(rows_of<const T>(grad_out), d * hidden), layer.kept = rows_of<const T>(kept, d);
  layer.grad_h_n = part<const T>(grad_h_n, state), layer.grad_c_n = part<const T>(grad_c_n, state);
  layer.grad_h0 = part<T>(grad_h0, state), layer.grad_c0 = part<T>(grad_c0, state);
}

template <class Cell, class T>
void backward(const Context& context, const View& grad_x, const View& grad_r, const View& grad_h0, const View& grad_c0,
              const View& grad_out, const View& grad_h_n, const View& grad_c_n, const View& kept, std::span<const View> w_hh,
              const View& lengths) {
  const std::int64_t directions = kept.size(0), hidden = w_hh[0].size(1);
  const bool by_steps = hidden > kLargestTile;
  if (by_steps || grad_x.numel() == 0) start(context, grad_h0, grad_h_n), start(context, grad_c0, grad_c_n);
  if (grad_x.numel() == 0) return;
  if (by_steps) {
    const Workspace memory(context, directions == 1 ? 0 : static_cast<std::size_t>(directions * w_hh[0].nbytes()));
    const Workspace scratch(context, sizeof(T) * static_cast<std::size_t>(backward_scratch<Cell>(grad_h0)));
    BackwardLayer<Cell, T> layers[2] = {};
    for (std::int64_t d = 0; d < directions; ++d)
      describe<BackwardLayer<Cell, T>, T>(layers[d], d, grad_x, grad_r, grad_h0, grad_c0, grad_out, grad_h_n, grad_c_n, kept, lengths);
    return backward_by_steps<Cell, T>(StreamEngine{context}, layers, grad_h0, joined_weights(context, w_hh, memory.data()),
                                      scratch.data<T>());
  }
  using Tile = RnnTileBackward<Cell, T, kTileRows>;
  BothDirections<Tile> both = {};
  for (std::int64_t d = 0; d < directions; ++d) {
    describe<Tile, T>(both.tile[d], d, grad_x, grad_r, grad_h0, grad_c0, grad_out, grad_h_n, grad_c_n, kept, lengths);
    both.tile[d].weights = part<const T>(w_hh[static_cast<std::size_t>(d)], 0);
  }
  launch(context, both, directions);
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
