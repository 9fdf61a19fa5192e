// Recurrent layers and their gradients. A task takes a tile of the batch in one direction through all steps: its rows depend on no others,
// so threads never wait for each other between steps, and a step is one product of the tile with the weights and one pass over its gates.
#include "dispatch.hpp"
#include "gemm.hpp"
#include "kernels.hpp"
#include "vec.hpp"

#include <tensorlite/detail/rnn_cell.hpp>

namespace tensorlite::cpu::TL_CPU_NS {
namespace {

constexpr std::int64_t kTileBatch = 2 * kTileRows;  // so few rows meet the weights where they are: nothing is packed at any step

/// Rows of a [steps, N, width] array, by step and sample.
template <class T> struct Rows {
  T* data = nullptr;
  std::int64_t step = 0, sample = 0;
  Rows() = default;
  explicit Rows(const View& view) {
    if (view) *this = Rows(view.ptr<T>(), view.stride(0), view.stride(1));
  }
  /// Of one direction of [D, steps, N, width].
  Rows(const View& view, std::int64_t direction) {
    if (view) *this = Rows(view.ptr<T>() + direction * view.stride(0), view.stride(1), view.stride(2));
  }
  Rows(T* d, std::int64_t s, std::int64_t n) : data(d), step(s), sample(n) {}
  T* at(std::int64_t t, std::int64_t n) const { return data ? data + t * step + n * sample : nullptr; }
};

/// N vectors that stand `stride` apart, `count` lanes of each.
template <class T, int N> void take(Vec<T> (&to)[N], const T* from, std::int64_t stride, std::int64_t count) {
  for (int i = 0; i < N; ++i) to[i] = count < Vec<T>::kSize ? Vec<T>::load(from + i * stride, count) : Vec<T>::load(from + i * stride);
}
template <class T, int N> void put(const Vec<T> (&from)[N], T* to, std::int64_t stride, std::int64_t count) {
  for (int i = 0; i < N; ++i) {
    if (count < Vec<T>::kSize) from[i].store(to + i * stride, count);
    else from[i].store(to + i * stride);
  }
}
template <class T> Vec<T> take(const T* from, std::int64_t count) {
  return count < Vec<T>::kSize ? Vec<T>::load(from, count) : Vec<T>::load(from);
}
template <class T> void put(Vec<T> from, T* to, std::int64_t count) {
  if (count < Vec<T>::kSize) from.store(to, count);
  else from.store(to);
}
/// f(j, count) for the vectors of a row.
template <class T, class F> void for_each_vec(std::int64_t width, F&& f) {
  for (std::int64_t j = 0; j < width; j += Vec<T>::kSize) f(j, std::min<std::int64_t>(Vec<T>::kSize, width - j));
}

struct Sizes {
  std::int64_t directions, steps, batch, hidden;
};

const std::int64_t* checked_lengths(const Context& context, const View& lengths, std::int64_t steps) {
  if (!lengths) return nullptr;
  const std::int64_t* all = lengths.ptr<std::int64_t>();
  for (std::int64_t n = 0; n < lengths.numel(); ++n)
    TL_CHECK(all[n] >= 0 && all[n] <= steps, ValueError, context.op, "length ", all[n], " of sample ", n, " is outside 0..", steps);
  return all;
}

/// f(direction, first sample, samples) for all tiles, in parallel.
template <class F> void for_each_tile(const Sizes& sizes, F&& f) {
  const std::int64_t tiles = (sizes.batch + kTileBatch - 1) / kTileBatch;
  parallel_for(sizes.directions * tiles, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t first = i % tiles * kTileBatch;
      f(i / tiles, first, std::min(kTileBatch, sizes.batch - first));
    }
  });
}

/// to [rows, columns] = a [rows, k] * b [k, columns], all with unit column stride.
template <class T>
void multiply(const Context& context, std::int64_t rows, std::int64_t columns, std::int64_t k, const T* a, std::int64_t a_stride,
              const T* b, std::int64_t b_stride, T* to, std::int64_t to_stride) {
  gemm(context, Gemm<T>{1, rows, columns, k, {a, 0, a_stride, 1}, {b, 0, b_stride, 1}, to, 0, to_stride});
}

// --------------------------------------------------------------------------------------------------------------------- forward

template <class Cell, class T> struct Forward {
  static constexpr int kGates = Cell::kGates, kKept = Cell::kKept;
  const Context& context;
  Sizes sizes;
  const std::int64_t* lengths;
  const T* weights;  ///< of one direction, transposed: [H, gates * H]
  const T* bias;     ///< or null
  Rows<T> x, out, kept;
  T *h, *c;  ///< state of the tile's first sample
  T *product, *reset;

  bool active(std::int64_t t, std::int64_t n) const { return !lengths || t < lengths[n]; }

  void run(std::int64_t first, std::int64_t count, bool from_the_end) const {
    for (std::int64_t i = 0; i < sizes.steps; ++i) {
      const std::int64_t t = from_the_end ? sizes.steps - 1 - i : i;
      multiply_state(t, first, count);
      for (std::int64_t n = 0; n < count; ++n) cells(t, first + n, n);
    }
  }

 private:
  void multiply_state(std::int64_t t, std::int64_t first, std::int64_t count) const {
    const std::int64_t hidden = sizes.hidden, width = kGates * hidden, plain = Cell::kTwoProducts ? width - hidden : width;
    multiply(context, count, plain, hidden, h, hidden, weights, width, product, width);
    if constexpr (Cell::kTwoProducts) {
      for (std::int64_t n = 0; n < count; ++n)
        for_each_vec<T>(hidden, [&](std::int64_t j, std::int64_t lanes) {
          Vec<T> recurrent = take(product + n * width + j, lanes);
          if (bias) recurrent += take(bias + j, lanes);
          put(Cell::reset_state(take(x.at(t, first + n) + j, lanes), recurrent, take(h + n * hidden + j, lanes)), reset + n * hidden + j,
              lanes);
        });
      multiply(context, count, hidden, hidden, reset, hidden, weights + plain, width, product + plain, width);
    }
  }

  void cells(std::int64_t t, std::int64_t sample, std::int64_t n) const {
    const std::int64_t hidden = sizes.hidden;
    T *to = out.at(t, sample), *keep = kept.at(t, sample);
    if (!active(t, sample)) {
      std::fill(to, to + hidden, T(0));
      if (keep) std::fill(keep, keep + kKept * hidden, T(0));
      return;
    }
    const T *from = x.at(t, sample), *recurrent = product + n * kGates * hidden;
    for_each_vec<T>(hidden, [&](std::int64_t j, std::int64_t lanes) {
      Vec<T> xs[kGates], rs[kGates], keeps[kKept], state = take(h + n * hidden + j, lanes), cell(0);
      take(xs, from + j, hidden, lanes);
      take(rs, recurrent + j, hidden, lanes);
      if (bias)
        for (int g = 0; g < kGates; ++g) rs[g] += take(bias + g * hidden + j, lanes);
      if (c) cell = take(c + n * hidden + j, lanes);
      Cell::forward(xs, rs, state, cell, keeps);
      put(state, h + n * hidden + j, lanes);
      put(state, to + j, lanes);
      if (c) put(cell, c + n * hidden + j, lanes);
      if (keep) put(keeps, keep + j, hidden, lanes);
    });
  }
};

/// The weights of every direction, transposed: rows of a product's right side.
template <class T> const T* transposed_weights(const Context& context, std::span<const View> w_hh, const Workspace& memory) {
  const std::int64_t width = w_hh[0].size(0), hidden = w_hh[0].size(1);
  for (std::size_t d = 0; d < w_hh.size(); ++d)
    copy(context,
         View(memory.data<T>() + static_cast<std::int64_t>(d) * width * hidden, w_hh[d].dtype, w_hh[d].device, {hidden, width}, {width, 1}),
         View(w_hh[d].data, w_hh[d].dtype, w_hh[d].device, {hidden, width}, {1, hidden}));
  return memory.data<T>();
}

/// The state starts as `from`, 0 when absent.
template <class T> void start(const View& state, const View& from) {
  if (!state) return;
  if (from) std::copy_n(from.ptr<T>(), from.numel(), state.ptr<T>());
  else std::fill_n(state.ptr<T>(), state.numel(), T(0));
}

template <class Cell, class T>
void forward(const Context& context, const View& out, const View& h_n, const View& c_n, const View& kept, std::span<const View> x,
             std::span<const View> w_hh, std::span<const View> b_hh, const View& h0, const View& c0, const View& lengths) {
  const Sizes sizes{h_n.size(0), out.size(0), h_n.size(1), h_n.size(2)};
  const std::int64_t hidden = sizes.hidden, width = Cell::kGates * hidden;
  const std::int64_t* const checked = checked_lengths(context, lengths, sizes.steps);
  start<T>(h_n, h0);
  start<T>(c_n, c0);
  if (out.numel() == 0) return;
  const Workspace memory(context, sizeof(T) * static_cast<std::size_t>(sizes.directions * width * hidden));
  const T* const weights = transposed_weights<T>(context, w_hh, memory);
  for_each_tile(sizes, [&](std::int64_t d, std::int64_t first, std::int64_t count) {
    const Workspace scratch(context, sizeof(T) * static_cast<std::size_t>(count * (width + hidden)));
    const std::int64_t state = (d * sizes.batch + first) * hidden;
    const View& bias = b_hh[static_cast<std::size_t>(d)];
    const Rows<T> to(out.ptr<T>() + d * hidden, out.stride(0), out.stride(1));
    const Forward<Cell, T> layer{context,
                                 sizes,
                                 checked,
                                 weights + d * width * hidden,
                                 bias ? bias.ptr<T>() : nullptr,
                                 Rows<T>(x[static_cast<std::size_t>(d)]),
                                 to,
                                 Rows<T>(kept, d),
                                 h_n.ptr<T>() + state,
                                 c_n ? c_n.ptr<T>() + state : nullptr,
                                 scratch.data<T>(),
                                 scratch.data<T>() + count * width};
    layer.run(first, count, d == 1);
  });
}

// -------------------------------------------------------------------------------------------------------------------- backward

template <class Cell, class T> struct Backward {
  static constexpr int kGates = Cell::kGates, kKept = Cell::kKept;
  const Context& context;
  Sizes sizes;
  const std::int64_t* lengths;
  const T* weights;  ///< of one direction: [gates * H, H]
  Rows<T> grad_x, grad_r, grad_out, kept;
  T *dh, *dc;  ///< gradient of the state of the tile's first sample
  T* product;  ///< what the last step's recurrent product adds to it

  bool active(std::int64_t t, std::int64_t n) const { return !lengths || t < lengths[n]; }

  void run(std::int64_t first, std::int64_t count, bool from_the_end) const {
    std::fill_n(product, count * sizes.hidden, T(0));
    for (std::int64_t i = sizes.steps - 1; i >= 0; --i) {
      const std::int64_t t = from_the_end ? sizes.steps - 1 - i : i;
      for (std::int64_t n = 0; n < count; ++n) cells(t, first + n, n);
      multiply_gradient(t, first, count);
    }
    for (std::int64_t k = 0; k < count * sizes.hidden; ++k) dh[k] += product[k];
  }

 private:
  void cells(std::int64_t t, std::int64_t sample, std::int64_t n) const {
    const std::int64_t hidden = sizes.hidden;
    T *to_x = grad_x.at(t, sample), *to_r = grad_r.at(t, sample);
    const bool runs = active(t, sample);
    if (!runs) {
      std::fill(to_x, to_x + kGates * hidden, T(0));
      if (to_r) std::fill(to_r, to_r + kGates * hidden, T(0));
    }
    const T *keep = kept.at(t, sample), *from = grad_out.at(t, sample);
    for_each_vec<T>(hidden, [&](std::int64_t j, std::int64_t lanes) {
      Vec<T> gradient = take(dh + n * hidden + j, lanes) + take(product + n * hidden + j, lanes);
      if (runs) {
        Vec<T> keeps[kKept], dx[kGates], dr[kGates], cell(0);
        if (from) gradient += take(from + j, lanes);
        take(keeps, keep + j, hidden, lanes);
        if (dc) cell = take(dc + n * hidden + j, lanes);
        Cell::backward(keeps, gradient, cell, dx, dr);
        put(dx, to_x + j, hidden, lanes);
        if (to_r) put(dr, to_r + j, hidden, lanes);
        if (dc) put(cell, dc + n * hidden + j, lanes);
      }
      put(gradient, dh + n * hidden + j, lanes);
    });
  }

  void multiply_gradient(std::int64_t t, std::int64_t first, std::int64_t count) const {
    const Rows<T>& gates = grad_r.data ? grad_r : grad_x;
    const std::int64_t hidden = sizes.hidden, plain = (Cell::kTwoProducts ? kGates - 1 : kGates) * hidden;
    if constexpr (Cell::kTwoProducts) {
      multiply(context, count, hidden, hidden, gates.at(t, first) + plain, gates.sample, weights + plain * hidden, hidden, product, hidden);
      for (std::int64_t n = 0; n < count; ++n)
        if (active(t, first + n)) reset_gate(t, first + n, n);
    }
    multiply(context, count, hidden, plain, gates.at(t, first), gates.sample, weights, hidden, product, hidden);
  }

  void reset_gate(std::int64_t t, std::int64_t sample, std::int64_t n) const {
    const std::int64_t hidden = sizes.hidden;
    const T* keep = kept.at(t, sample);
    for_each_vec<T>(hidden, [&](std::int64_t j, std::int64_t lanes) {
      Vec<T> gradient = take(dh + n * hidden + j, lanes);
      const Vec<T> dx =
          Cell::reset_backward(take(keep + j, lanes), take(keep + hidden + j, lanes), take(product + n * hidden + j, lanes), gradient);
      put(dx, grad_x.at(t, sample) + j, lanes);
      put(gradient, dh + n * hidden + j, lanes);
    });
  }
};

template <class Cell, class T>
void backward(const Context& context, const View& grad_x, const View& grad_r, const View& grad_h0, const View& grad_c0,
              const View& grad_out, const View& grad_h_n, const View& grad_c_n, const View& kept, std::span<const View> w_hh,
              const View& lengths) {
  const Sizes sizes{kept.size(0), kept.size(1), kept.size(2), w_hh[0].size(1)};
  const std::int64_t hidden = sizes.hidden;
  start<T>(grad_h0, grad_h_n);
  start<T>(grad_c0, grad_c_n);
  if (grad_x.numel() == 0) return;
  for_each_tile(sizes, [&](std::int64_t d, std::int64_t first, std::int64_t count) {
    const Workspace scratch(context, sizeof(T) * static_cast<std::size_t>(count * hidden));
    const std::int64_t state = (d * sizes.batch + first) * hidden;
    Rows<T> from(grad_out);
    if (from.data) from.data += d * hidden;
    const Backward<Cell, T> layer{context,
                                  sizes,
                                  lengths ? lengths.ptr<std::int64_t>() : nullptr,
                                  w_hh[static_cast<std::size_t>(d)].ptr<T>(),
                                  Rows<T>(grad_x, d),
                                  Rows<T>(grad_r, d),
                                  from,
                                  Rows<T>(kept, d),
                                  grad_h0.ptr<T>() + state,
                                  grad_c0 ? grad_c0.ptr<T>() + state : nullptr,
                                  scratch.data<T>()};
    layer.run(first, count, d == 1);
  });
}

/// Calls f(cell, type).
template <class F> void dispatch_layer(const Context& context, RnnKind kind, DType dtype, F&& f) {
  tensorlite::detail::with_rnn_cell(kind, [&](auto cell) {
    if (dtype == DType::float64) return f(cell, Type<double>{});
    if (dtype != DType::float32) throw_dtype(context.op, dtype, "float32 or float64");
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

}  // namespace tensorlite::cpu::TL_CPU_NS
