// A recurrent layer step by step: a matrix product for all samples of both directions, then all cells. For states so large that a tile (see
// rnn_tile.hpp) would read the weights too often.
//
// Engine is who does the work, in order: engine.each(n, f) calls f(i) for every i in [0, n), engine.multiply(out, a, b) is the kernel
// matmul.
#pragma once

#include "rnn_tile.hpp"

namespace tensorlite::cuda {

template <class Cell, class T> using ForwardLayer = RnnTileForward<Cell, T, 1>;
template <class Cell, class T> using BackwardLayer = RnnTileBackward<Cell, T, 1>;

/// Element i of [D, N, H].
struct CellIndex {
  int direction, sample, unit;
  TL_HOST_DEVICE CellIndex(std::int64_t i, const TileSizes& sizes)
      : direction(static_cast<int>(i / (sizes.batch * sizes.hidden))),
        sample(static_cast<int>(i / sizes.hidden % sizes.batch)),
        unit(static_cast<int>(i % sizes.hidden)) {}
};

/// Dense [D, N, width] of the scratch memory.
template <class T> struct StepMatrix {
  T* data;
  std::int64_t batch, width;
  TL_HOST_DEVICE T& at(const CellIndex& i, std::int64_t gate, int hidden) const {
    return data[(i.direction * batch + i.sample) * width + gate * hidden + i.unit];
  }
  View view(const View& like) const { return View(data, like.dtype, like.device, {like.size(0), batch, width}, {batch * width, width, 1}); }
};

/// Of the weights [D, gates * H, H], the gates [begin, end).
inline View gates_of(const View& weights, std::int64_t begin, std::int64_t end) {
  const std::int64_t hidden = weights.size(2);
  View part = weights;
  part.data = static_cast<char*>(weights.data) + begin * hidden * hidden * size_of(weights.dtype);
  part.sizes[1] = (end - begin) * hidden;
  return part;
}
inline View transposed(View matrices) {
  std::swap(matrices.sizes[1], matrices.sizes[2]);
  std::swap(matrices.strides[1], matrices.strides[2]);
  return matrices;
}

// --------------------------------------------------------------------------------------------------------------------- forward

template <class Cell, class T> struct ForwardCells {
  static constexpr int kPlain = ForwardLayer<Cell, T>::kPlain;
  ForwardLayer<Cell, T> layer[2];
  StepMatrix<T> product, last;  ///< of the plain gates; of the last gate of kTwoProducts
  std::int64_t step;
  TL_HOST_DEVICE void operator()(std::int64_t i) const {
    const TileSizes& sizes = layer[0].sizes;
    const CellIndex at(i, sizes);
    const ForwardLayer<Cell, T>& l = layer[at.direction];
    l.cell(l.time(step), at.sample, at.unit, l.h_n[l.state_at(at.sample, at.unit)], [&](int gate) {
      const T part = gate < kPlain ? product.at(at, gate, sizes.hidden) : last.at(at, 0, sizes.hidden);
      return l.bias ? part + l.bias[gate * sizes.hidden + at.unit] : part;
    });
  }
};

template <class Cell, class T> struct ResetStates {
  ForwardLayer<Cell, T> layer[2];
  StepMatrix<T> product, reset;
  std::int64_t step;
  TL_HOST_DEVICE void operator()(std::int64_t i) const {
    const TileSizes& sizes = layer[0].sizes;
    const CellIndex at(i, sizes);
    const ForwardLayer<Cell, T>& l = layer[at.direction];
    const T part = product.at(at, 0, sizes.hidden), recurrent = l.bias ? part + l.bias[at.unit] : part;
    reset.at(at, 0, sizes.hidden) =
        Cell::reset_state(l.x.at(l.time(step), at.sample)[at.unit], recurrent, l.h_n[l.state_at(at.sample, at.unit)]);
  }
};

/// Values of scratch memory that the steps need.
template <class Cell> std::int64_t forward_scratch(const View& h_n) { return h_n.numel() * (Cell::kGates + 1); }

/// h_n, c_n hold the first states; weights: dense [D, gates * H, H].
template <class Cell, class T, class Engine>
void forward_by_steps(const Engine& engine, const ForwardLayer<Cell, T> (&layer)[2], const View& h_n, const View& weights, T* scratch) {
  constexpr int kGates = Cell::kGates, kPlain = ForwardLayer<Cell, T>::kPlain;
  const std::int64_t count = h_n.numel(), batch = h_n.size(1), hidden = h_n.size(2);
  const StepMatrix<T> product{scratch, batch, kPlain * hidden}, last{scratch + kPlain * count, batch, hidden},
      reset{scratch + kGates * count, batch, hidden};
  for (std::int64_t step = 0; step < layer[0].sizes.steps; ++step) {
    engine.multiply(product.view(h_n), h_n, transposed(gates_of(weights, 0, kPlain)));
    if constexpr (Cell::kTwoProducts) {
      engine.each(count, ResetStates<Cell, T>{{layer[0], layer[1]}, product, reset, step});
      engine.multiply(last.view(h_n), reset.view(h_n), transposed(gates_of(weights, kPlain, kGates)));
    }
    engine.each(count, ForwardCells<Cell, T>{{layer[0], layer[1]}, product, last, step});
  }
}

// -------------------------------------------------------------------------------------------------------------------- backward

template <class Cell, class T> struct BackwardCells {
  static constexpr int kPlain = BackwardLayer<Cell, T>::kPlain;
  BackwardLayer<Cell, T> layer[2];
  StepMatrix<T> product, gates, last;  ///< what the later step adds; the plain gates' gradients; that of the last gate of kTwoProducts
  std::int64_t step;
  bool first;  ///< of the walk: no later step
  TL_HOST_DEVICE void operator()(std::int64_t i) const {
    const int hidden = layer[0].sizes.hidden;
    const CellIndex at(i, layer[0].sizes);
    const BackwardLayer<Cell, T>& l = layer[at.direction];
    l.cell(l.time(step), at.sample, at.unit, first ? T(0) : product.at(at, 0, hidden),
           [&](int gate) -> T& { return gate < kPlain ? gates.at(at, gate, hidden) : last.at(at, 0, hidden); });
  }
};

template <class Cell, class T> struct ResetGates {
  BackwardLayer<Cell, T> layer[2];
  StepMatrix<T> product, gates;
  std::int64_t step;
  TL_HOST_DEVICE void operator()(std::int64_t i) const {
    const int hidden = layer[0].sizes.hidden;
    const CellIndex at(i, layer[0].sizes);
    const BackwardLayer<Cell, T>& l = layer[at.direction];
    gates.at(at, 0, hidden) = l.reset_gate(l.time(step), at.sample, at.unit, product.at(at, 0, hidden));
  }
};

template <class Cell, class T> struct AddProduct {
  T* to;
  const T* product;
  TL_HOST_DEVICE void operator()(std::int64_t i) const { to[i] += product[i]; }
};

template <class Cell> std::int64_t backward_scratch(const View& grad_h0) { return grad_h0.numel() * (Cell::kGates + 1); }

/// grad_h0, grad_c0 hold the gradients of the last states.
template <class Cell, class T, class Engine>
void backward_by_steps(const Engine& engine, const BackwardLayer<Cell, T> (&layer)[2], const View& grad_h0, const View& weights,
                       T* scratch) {
  constexpr int kGates = Cell::kGates, kPlain = BackwardLayer<Cell, T>::kPlain;
  const std::int64_t count = grad_h0.numel(), batch = grad_h0.size(1), hidden = grad_h0.size(2), steps = layer[0].sizes.steps;
  const StepMatrix<T> gates{scratch, batch, kPlain * hidden}, last{scratch + kPlain * count, batch, hidden},
      product{scratch + kGates * count, batch, hidden};
  for (std::int64_t step = steps - 1; step >= 0; --step) {
    engine.each(count, BackwardCells<Cell, T>{{layer[0], layer[1]}, product, gates, last, step, step == steps - 1});
    if constexpr (Cell::kTwoProducts) {
      engine.multiply(product.view(grad_h0), last.view(grad_h0), gates_of(weights, kPlain, kGates));
      engine.each(count, ResetGates<Cell, T>{{layer[0], layer[1]}, product, gates, step});
    }
    engine.multiply(product.view(grad_h0), gates.view(grad_h0), gates_of(weights, 0, kPlain));
  }
  engine.each(count, AddProduct<Cell, T>{grad_h0.ptr<T>(), product.data});
}

}  // namespace tensorlite::cuda
