// A recurrent layer's steps for a tile of kRows samples in one direction, and their gradient: the samples depend on no others, so one block
// of threads takes them through all steps. Nothing here is CUDA's own: tests run it on the host.
//
// Lanes is who does the work: lanes.each(n, f) calls f(i) for every i in [0, n), always by the same lane for the same n, and returns when
// all are done.
#pragma once

#include <tensorlite/detail/rnn_cell.hpp>

namespace tensorlite::cuda {

/// Rows of a [steps, N, width] array.
template <class T> struct StepRows {
  T* data = nullptr;  ///< null: absent
  std::int64_t step = 0, sample = 0;
  TL_HOST_DEVICE T* at(std::int64_t t, std::int64_t n) const { return data + t * step + n * sample; }
};

/// One value of each sample of a tile, read at once.
template <class T, int kRows> struct alignas(sizeof(T) * kRows) TileColumn { T v[kRows]; };

struct TileSizes {
  std::int64_t steps, batch;
  int hidden;
  const std::int64_t* lengths;  ///< null: all steps
};

/// What forward and backward share. kCells: one lane per sample and unit.
template <class Cell, class T, int kRows> struct RnnTile {
  static constexpr int kGates = Cell::kGates, kKept = Cell::kKept, kPlain = Cell::kTwoProducts ? kGates - 1 : kGates;
  using Column = TileColumn<T, kRows>;
  TileSizes sizes;
  std::int64_t first;  ///< sample
  bool from_the_end;

  TL_HOST_DEVICE bool inside(int row) const { return first + row < sizes.batch; }
  TL_HOST_DEVICE bool active(std::int64_t t, int row) const { return !sizes.lengths || t < sizes.lengths[first + row]; }
  TL_HOST_DEVICE std::int64_t time(std::int64_t i) const { return from_the_end ? sizes.steps - 1 - i : i; }
  /// Of a [N, H] state.
  TL_HOST_DEVICE std::int64_t state_at(int row, int j) const { return (first + row) * sizes.hidden + j; }
  /// f(row, j) for the tile's samples and units.
  template <class Lanes, class F> TL_HOST_DEVICE void each_cell(const Lanes& lanes, const F& f) const {
    lanes.each(kRows * sizes.hidden, [&](int i) {
      const int row = i / sizes.hidden;
      if (inside(row)) f(row, i - row * sizes.hidden);
    });
  }
};

template <class Cell, class T, int kRows> struct RnnTileForward : RnnTile<Cell, T, kRows> {
  using Base = RnnTile<Cell, T, kRows>;
  using Base::kGates, Base::kKept, Base::kPlain, Base::sizes;
  using typename Base::Column;
  const T* weights;  ///< transposed: [H, gates * H]
  const T* bias;     ///< or null
  StepRows<const T> x;
  StepRows<T> out, kept;
  const T *h0, *c0;  ///< [N, H] or null
  T *h_n, *c_n;      ///< [N, H]; c_n null without cells

  /// Columns of fast memory: the state, the product, the state behind the reset gate.
  TL_HOST_DEVICE static int columns(int hidden) { return hidden * (1 + kGates + (Cell::kTwoProducts ? 1 : 0)); }

  template <class Lanes> TL_HOST_DEVICE void run(const Lanes& lanes, Column* memory) const {
    Column *state = memory, *product = state + sizes.hidden, *reset = product + kGates * sizes.hidden;
    lanes.each(sizes.hidden, [&](int j) {
      for (int row = 0; row < kRows; ++row) {
        const bool there = this->inside(row);
        state[j].v[row] = there && h0 ? h0[this->state_at(row, j)] : T(0);
      }
    });
    this->each_cell(lanes, [&](int row, int j) {
      if (c_n) c_n[this->state_at(row, j)] = c0 ? c0[this->state_at(row, j)] : T(0);
    });
    for (std::int64_t i = 0; i < sizes.steps; ++i) {
      const std::int64_t t = this->time(i);
      multiply(lanes, state, product, 0, kPlain);
      if constexpr (Cell::kTwoProducts) {
        this->each_cell(lanes, [&](int row, int j) {
          reset[j].v[row] = Cell::reset_state(x.at(t, this->first + row)[j], product[j].v[row], state[j].v[row]);
        });
        multiply(lanes, reset, product, kPlain, kGates);
      }
      this->each_cell(lanes, [&](int row, int j) {
        cell(t, row, j, state[j].v[row], [&](int gate) { return product[gate * sizes.hidden + j].v[row]; });
      });
    }
    this->each_cell(lanes, [&](int row, int j) { h_n[this->state_at(row, j)] = state[j].v[row]; });
  }

  /// One sample's unit in step t: h is its state, recurrent(gate) its part of the product.
  template <class Recurrent> TL_HOST_DEVICE void cell(std::int64_t t, int row, int j, T& h, const Recurrent& recurrent) const {
    const std::int64_t n = this->first + row;
    const int hidden = sizes.hidden;
    const bool runs = this->active(t, row);
    T keeps[kKept] = {}, result = 0;
    if (runs) {
      T xs[kGates], rs[kGates], c = c_n ? c_n[this->state_at(row, j)] : T(0);
      for (int g = 0; g < kGates; ++g) xs[g] = x.at(t, n)[g * hidden + j], rs[g] = recurrent(g);
      Cell::forward(xs, rs, h, c, keeps);
      if (c_n) c_n[this->state_at(row, j)] = c;
      result = h;
    }
    out.at(t, n)[j] = result;
    if (kept.data)
      for (int k = 0; k < kKept; ++k) kept.at(t, n)[k * hidden + j] = keeps[k];
  }

 private:
  /// The gates [begin, end) of the product: vectors (a value per unit) times weights, plus the bias.
  template <class Lanes>
  TL_HOST_DEVICE void multiply(const Lanes& lanes, const Column* vectors, Column* product, int begin, int end) const {
    const int hidden = sizes.hidden, width = kGates * hidden, from = begin * hidden;
    lanes.each((end - begin) * hidden, [&](int i) {
      const T* w = weights + from + i;
      Column sum = {};
#if defined(__CUDA_ARCH__)
#pragma unroll 8  // so many weights are under way at once
#endif
      for (int k = 0; k < hidden; ++k) {
        const T weight = w[static_cast<std::int64_t>(k) * width];
        const Column vector = vectors[k];
        for (int row = 0; row < kRows; ++row) sum.v[row] += weight * vector.v[row];
      }
      if (bias)
        for (int row = 0; row < kRows; ++row) sum.v[row] += bias[from + i];
      product[from + i] = sum;
    });
  }
};

template <class Cell, class T, int kRows> struct RnnTileBackward : RnnTile<Cell, T, kRows> {
  using Base = RnnTile<Cell, T, kRows>;
  using Base::kGates, Base::kKept, Base::kPlain, Base::sizes;
  using typename Base::Column;
  const T* weights;  ///< [gates * H, H]
  StepRows<T> grad_x, grad_r;
  StepRows<const T> grad_out, kept;
  const T *grad_h_n, *grad_c_n;  ///< [N, H] or null
  T *grad_h0, *grad_c0;          ///< [N, H]; grad_c0 null without cells

  /// Columns of fast memory: the gates' gradients and what each gate adds to the state's.
  TL_HOST_DEVICE static int columns(int hidden) { return 2 * kGates * hidden; }

  template <class Lanes> TL_HOST_DEVICE void run(const Lanes& lanes, Column* memory) const {
    Column *gates = memory, *parts = gates + kGates * sizes.hidden;
    lanes.each(columns(sizes.hidden), [&](int i) { memory[i] = {}; });
    this->each_cell(lanes, [&](int row, int j) {
      const std::int64_t at = this->state_at(row, j);
      grad_h0[at] = grad_h_n ? grad_h_n[at] : T(0);
      if (grad_c0) grad_c0[at] = grad_c_n ? grad_c_n[at] : T(0);
    });
    for (std::int64_t i = sizes.steps - 1; i >= 0; --i) {
      const std::int64_t t = this->time(i);
      this->each_cell(lanes, [&](int row, int j) {
        cell(t, row, j, through_product(parts, row, j), [&](int gate) -> T& { return gates[gate * sizes.hidden + j].v[row]; });
      });
      if constexpr (Cell::kTwoProducts) {
        multiply(lanes, gates, parts, kPlain, kGates);
        this->each_cell(lanes, [&](int row, int j) { gates[j].v[row] = reset_gate(t, row, j, parts[kPlain * sizes.hidden + j].v[row]); });
      }
      multiply(lanes, gates, parts, 0, kPlain);
    }
    this->each_cell(lanes, [&](int row, int j) { grad_h0[this->state_at(row, j)] += through_product(parts, row, j); });
  }

  /// One sample's unit in step t: `through_product` is what the later step's product adds to the gradient of its state, gate(g) takes what
  /// this step's product starts from.
  template <class Gate> TL_HOST_DEVICE void cell(std::int64_t t, int row, int j, T through_product, const Gate& gate) const {
    const std::int64_t n = this->first + row, at = this->state_at(row, j);
    const int hidden = sizes.hidden;
    T dh = grad_h0[at] + through_product, dx[kGates] = {}, dr[kGates] = {};
    if (this->active(t, row)) {
      T keeps[kKept], dc = grad_c0 ? grad_c0[at] : T(0);
      for (int k = 0; k < kKept; ++k) keeps[k] = kept.at(t, n)[k * hidden + j];
      if (grad_out.data) dh += grad_out.at(t, n)[j];
      Cell::backward(keeps, dh, dc, dx, dr);
      if (grad_c0) grad_c0[at] = dc;
    }
    grad_h0[at] = dh;
    for (int g = 0; g < kGates; ++g) {
      grad_x.at(t, n)[g * hidden + j] = dx[g];
      if (grad_r.data) grad_r.at(t, n)[g * hidden + j] = dr[g];
      gate(g) = dr[g];
    }
  }

  /// kTwoProducts: the reset gate's gradient, from that of the state behind it.
  TL_HOST_DEVICE T reset_gate(std::int64_t t, int row, int j, T gradient) const {
    if (!this->active(t, row)) return T(0);
    const std::int64_t n = this->first + row;
    const T* keep = kept.at(t, n) + j;
    const T dx = Cell::reset_backward(keep[0], keep[sizes.hidden], gradient, grad_h0[this->state_at(row, j)]);
    grad_x.at(t, n)[j] = dx;
    return dx;
  }

 private:
  /// What the gates [begin, end) add to the gradient of the vector that they were multiplied with, gate by gate.
  template <class Lanes> TL_HOST_DEVICE void multiply(const Lanes& lanes, const Column* gates, Column* parts, int begin, int end) const {
    const int hidden = sizes.hidden, from = begin * hidden;
    lanes.each((end - begin) * hidden, [&](int i) {
      const int gate = i / hidden, k = i - gate * hidden, row_of_gate = from + gate * hidden;
      const T* w = weights + static_cast<std::int64_t>(row_of_gate) * hidden + k;
      Column sum = {};
#if defined(__CUDA_ARCH__)
#pragma unroll 8  // so many weights are under way at once
#endif
      for (int j = 0; j < hidden; ++j) {
        const T weight = w[static_cast<std::int64_t>(j) * hidden];
        const Column vector = gates[row_of_gate + j];
        for (int row = 0; row < kRows; ++row) sum.v[row] += weight * vector.v[row];
      }
      parts[from + i] = sum;
    });
  }

  TL_HOST_DEVICE T through_product(const Column* parts, int row, int j) const {
    T sum = 0;
    for (int g = 0; g < kPlain; ++g) sum += parts[g * sizes.hidden + j].v[row];
    return sum;
  }
};

}  // namespace tensorlite::cuda
