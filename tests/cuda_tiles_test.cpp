// The parts of CUDA kernels that are plain C++, run on the host against the CPU's kernels: lanes in falling order, so that work of one
// phase that depends on other work of the same phase would show.
#include "kernel_test.hpp"

#include "cuda/rnn_steps.hpp"

#include <tensorlite/detail/ctc.hpp>

#include <array>

using namespace kernel_test;
using namespace tensorlite::cuda;

namespace {

struct FallingLanes {
  template <class F> void each(std::int64_t count, const F& f) const {
    for (std::int64_t i = count - 1; i >= 0; --i) f(static_cast<int>(i));
  }
};

constexpr std::int64_t kSteps = 5, kBatch = 6, kHidden = 7, kDirections = 2;

/// Everything that a layer reads and writes, forward and backward.
struct Layer {
  RnnKind kind;
  std::int64_t width = detail::rnn_gates(kind) * kHidden, kept_width = detail::rnn_kept(kind) * kHidden;
  std::array<Array, 2> x{random({kSteps, kBatch, width}, 1), random({kSteps, kBatch, width}, 2)};
  std::array<Array, 2> w{random({width, kHidden}, 3), random({width, kHidden}, 4)}, b{random({width}, 5), random({width}, 6)};
  Array h0 = random({kDirections, kBatch, kHidden}, 7), c0 = random({kDirections, kBatch, kHidden}, 8);
  Array lengths = Array::of(DType::int64, {kBatch}, {5, 2, 0, 3, 1, 4});
  Array grad_out = random({kSteps, kBatch, kDirections*kHidden}, 9), grad_h_n = random({kDirections, kBatch, kHidden}, 10),
        grad_c_n = random({kDirections, kBatch, kHidden}, 11);
  Array out = zeros({kSteps, kBatch, kDirections*kHidden}), h_n = zeros({kDirections, kBatch, kHidden}), c_n = zeros(h_n.sizes()),
        kept = zeros({kDirections, kSteps, kBatch, kept_width});
  Array grad_x = zeros({kDirections, kSteps, kBatch, width}), grad_r = zeros(grad_x.sizes()), grad_h0 = zeros(h_n.sizes()),
        grad_c0 = zeros(h_n.sizes());
  bool with_state, with_lengths;  ///< with a state to start from, its gradient and a bias; with lengths

  Layer(RnnKind k, bool state, bool counted) : kind(k), with_state(state), with_lengths(counted) {}
  static Array random(const Dims& sizes, unsigned seed) { return Array::random(DType::float64, sizes, seed, Layout::dense, 0.5); }
  static Array zeros(const Dims& sizes) {
    Array a(DType::float64, sizes);
    a.fill(0);
    return a;
  }
  View given(const Array& a, bool present) const { return present ? a.view() : View(); }
  bool lstm() const { return kind == RnnKind::lstm; }
  bool gru() const { return kind == RnnKind::gru; }
  std::vector<const Array*> results() const { return {&out, &h_n, &c_n, &kept, &grad_x, &grad_r, &grad_h0, &grad_c0}; }
};

void run_on_cpu(Layer& l) {
  const View x[] = {l.x[0], l.x[1]}, w[] = {l.w[0], l.w[1]}, b[] = {l.given(l.b[0], l.with_state), l.given(l.b[1], l.with_state)};
  const View c_n = l.given(l.c_n, l.lstm()), lengths = l.given(l.lengths, l.with_lengths);
  TL_KERNEL(rnn, l.kind, l.out, l.h_n, c_n, l.kept, x, w, b, l.given(l.h0, l.with_state), l.given(l.c0, l.with_state && l.lstm()), lengths);
  TL_KERNEL(rnn_backward, l.kind, l.grad_x, l.given(l.grad_r, l.gru()), l.grad_h0, l.given(l.grad_c0, l.lstm()), l.grad_out,
            l.given(l.grad_h_n, l.with_state), l.given(l.grad_c_n, l.with_state && l.lstm()), l.kept, w, lengths);
}

double* data(const View& view, std::int64_t offset = 0) { return view ? view.ptr<double>() + offset : nullptr; }
template <class T> StepRows<T> rows(const Array& a, std::int64_t offset, int step_axis, bool present = true) {
  if (!present) return {};
  return {a.view().ptr<double>() + offset, a.view().stride(step_axis), a.view().stride(step_axis + 1)};
}

/// One direction of a tile or layer, as the GPU's launch sets it up.
template <class Tile> Tile make_tile(const Layer& l, std::int64_t d, std::int64_t first) {
  Tile tile = {};
  tile.sizes = {kSteps, kBatch, static_cast<int>(kHidden), l.with_lengths ? l.lengths.view().ptr<std::int64_t>() : nullptr};
  tile.first = first;
  tile.from_the_end = d == 1;
  return tile;
}

template <class Tile> Tile make_forward(const Layer& l, std::int64_t d, std::int64_t first) {
  const std::size_t at = static_cast<std::size_t>(d);
  const std::int64_t state = d * kBatch * kHidden;
  Tile f = make_tile<Tile>(l, d, first);
  f.bias = data(l.given(l.b[at], l.with_state));
  f.x = rows<const double>(l.x[at], 0, 0);
  f.out = rows<double>(l.out, d * kHidden, 0);
  f.kept = rows<double>(l.kept, d * l.kept.view().stride(0), 1);
  f.h0 = data(l.given(l.h0, l.with_state), state), f.c0 = data(l.given(l.c0, l.with_state && l.lstm()), state);
  f.h_n = data(l.h_n, state), f.c_n = data(l.given(l.c_n, l.lstm()), state);
  return f;
}
template <class Tile> Tile make_backward(const Layer& l, std::int64_t d, std::int64_t first) {
  const std::int64_t state = d * kBatch * kHidden;
  Tile g = make_tile<Tile>(l, d, first);
  g.weights = data(l.w[static_cast<std::size_t>(d)]);
  g.grad_x = rows<double>(l.grad_x, d * l.grad_x.view().stride(0), 1);
  g.grad_r = rows<double>(l.grad_r, d * l.grad_r.view().stride(0), 1, l.gru());
  g.grad_out = rows<const double>(l.grad_out, d * kHidden, 0);
  g.kept = rows<const double>(l.kept, d * l.kept.view().stride(0), 1);
  g.grad_h_n = data(l.given(l.grad_h_n, l.with_state), state), g.grad_c_n = data(l.given(l.grad_c_n, l.with_state && l.lstm()), state);
  g.grad_h0 = data(l.grad_h0, state), g.grad_c0 = data(l.given(l.grad_c0, l.lstm()), state);
  return g;
}

template <class Cell> void run_tiles(Layer& l) {
  constexpr int kRows = 4;
  using Forward = RnnTileForward<Cell, double, kRows>;
  using Backward = RnnTileBackward<Cell, double, kRows>;
  for (std::int64_t d = 0; d < kDirections; ++d) {
    std::vector<double> turned(static_cast<std::size_t>(l.width * kHidden));
    for (std::int64_t i = 0; i < l.width * kHidden; ++i)
      turned[static_cast<std::size_t>(i % kHidden * l.width + i / kHidden)] = l.w[static_cast<std::size_t>(d)][i];
    for (std::int64_t first = 0; first < kBatch; first += kRows) {
      Forward f = make_forward<Forward>(l, d, first);
      f.weights = turned.data();
      std::vector<typename Forward::Column> memory(static_cast<std::size_t>(Forward::columns(kHidden)));
      f.run(FallingLanes{}, memory.data());
      const Backward g = make_backward<Backward>(l, d, first);
      std::vector<typename Backward::Column> more(static_cast<std::size_t>(Backward::columns(kHidden)));
      g.run(FallingLanes{}, more.data());
    }
  }
}

struct HostEngine : FallingLanes {
  void multiply(const View& out, const View& a, const View& b) const { TL_KERNEL(matmul, out, a, b, View(), Activation::none); }
};

/// The first states where the caller of the steps puts them.
void start(Array& state, const Array& from, bool present) {
  for (std::int64_t i = 0; i < state.numel(); ++i) state.set(i, present ? from[i] : 0);
}

template <class Cell> void run_steps(Layer& l) {
  std::vector<double> weights(static_cast<std::size_t>(kDirections * l.width * kHidden));
  for (std::int64_t i = 0; i < l.width * kHidden; ++i)
    for (std::size_t d = 0; d < 2; ++d) weights[d * static_cast<std::size_t>(l.width * kHidden) + static_cast<std::size_t>(i)] = l.w[d][i];
  const Dims sizes{kDirections, l.width, kHidden};
  const View all(weights.data(), DType::float64, cpu_device(), sizes, contiguous_strides(sizes));
  start(l.h_n, l.h0, l.with_state);
  if (l.lstm()) start(l.c_n, l.c0, l.with_state);
  const ForwardLayer<Cell, double> forward[] = {make_forward<ForwardLayer<Cell, double>>(l, 0, 0),
                                                make_forward<ForwardLayer<Cell, double>>(l, 1, 0)};
  std::vector<double> scratch(static_cast<std::size_t>(forward_scratch<Cell>(l.h_n.view())));
  forward_by_steps<Cell, double>(HostEngine{}, forward, l.h_n, all, scratch.data());
  start(l.grad_h0, l.grad_h_n, l.with_state);
  if (l.lstm()) start(l.grad_c0, l.grad_c_n, l.with_state);
  const BackwardLayer<Cell, double> backward[] = {make_backward<BackwardLayer<Cell, double>>(l, 0, 0),
                                                  make_backward<BackwardLayer<Cell, double>>(l, 1, 0)};
  std::vector<double> more(static_cast<std::size_t>(backward_scratch<Cell>(l.grad_h0.view())));
  backward_by_steps<Cell, double>(HostEngine{}, backward, l.grad_h0, all, more.data());
}

}  // namespace

TEST_CASE("the GPU's ways through recurrent layers give what the CPU's kernels give") {
  for (const RnnKind kind : {RnnKind::tanh, RnnKind::relu, RnnKind::lstm, RnnKind::gru, RnnKind::gru_reset_before})
    for (const bool with_state : {false, true})
      for (const bool with_lengths : {false, true})
        for (const bool by_steps : {false, true}) {
          INFO("kind " << static_cast<int>(kind) << ", state " << with_state << ", lengths " << with_lengths << ", by steps " << by_steps);
          Layer cpu(kind, with_state, with_lengths), tiles(kind, with_state, with_lengths);
          run_on_cpu(cpu);
          detail::with_rnn_cell(kind, [&](auto cell) {
            if (by_steps) run_steps<decltype(cell)>(tiles);
            else run_tiles<decltype(cell)>(tiles);
          });
          const auto expected = cpu.results(), got = tiles.results();
          for (std::size_t i = 0; i < expected.size(); ++i) {
            INFO("result " << i);
            std::vector<double> numbers;
            for (std::int64_t k = 0; k < expected[i]->numel(); ++k) numbers.push_back((*expected[i])[k]);
            require_close(*got[i], numbers, 1e-12);
          }
        }
}

TEST_CASE("the walk of CTC does not depend on the order of its lanes") {
  const std::int64_t frames = 8, classes = 5, labels = 4;
  const std::vector<std::int64_t> targets[] = {{1, 1, 3, 1}, {2, 3, 2, 3}, {4, 4, 4, 4}};
  const Array scores = Array::random(DType::float64, {frames, 1, classes}, 3);
  for (const auto& target : targets)
    for (const bool logits : {false, true}) {
      Array loss(DType::float64, {1}), gradient(DType::float64, {frames, 1, classes}), falling(DType::float64, {frames, 1, classes});
      const View targets_view(const_cast<std::int64_t*>(target.data()), DType::int64, cpu_device(), {1, labels}, {labels, 1});
      TL_KERNEL(ctc_loss, loss, gradient, scores, targets_view, View(), View(), CtcParams{.logits = logits});
      std::vector<double> scratch(static_cast<std::size_t>(detail::CtcSample<double>::scratch_size(frames, labels)));
      detail::CtcSample<double> sample{scores.view().ptr<double>(),  classes, frames, classes, target.data(), labels, 0,
                                       falling.view().ptr<double>(), classes, frames, logits,  scratch.data()};
      CHECK(sample.run(FallingLanes{}) == loss[0]);
      CHECK(falling.same_bits(gradient));
      CHECK(std::isfinite(loss[0]));
      sample.gradient = nullptr;
      CHECK(sample.run(FallingLanes{}) == loss[0]);
    }
}
