// Out-of-line part of ops/rnn.hpp: checks, layers and the gradient of the recurrence.
#include <tensorlite/ops/rnn.hpp>

#include <tensorlite/detail/rnn_cell.hpp>
#include <tensorlite/ops/index.hpp>
#include <tensorlite/ops/random.hpp>

#include <array>

namespace tensorlite {
namespace detail {
namespace {

using Pair = std::array<Tensor, 2>;  // one per direction; the second undefined when there is one

View view_of(const Tensor& t) { return t.defined() ? t.raw() : View(); }

/// What a recurrence's gradient has to know besides tensors.
struct RnnPlan {
  const char* op;
  RnnKind kind;
  DType dtype;
  std::int64_t steps, batch, hidden;
  int directions;
  bool batch_first;

  Dims sequence(std::int64_t width) const { return batch_first ? Dims{batch, steps, width} : Dims{steps, batch, width}; }
  std::int64_t rows() const { return steps * batch; }
  Tensor make(const Dims& sizes, Device device) const { return make_tensor(sizes, dtype, device); }
  /// [D, ...] of sequences.
  Tensor make_sequences(std::int64_t width, Device device) const {
    Dims sizes = sequence(width);
    sizes.insert(0, directions);
    return make(sizes, device);
  }
  Tensor make_state(Device device) const { return make({directions, batch, hidden}, device); }
  /// The view with its axes of steps and samples in the kernels' order; they stand before the last one.
  View by_steps(const Tensor& t) const {
    View view = view_of(t);
    if (!view || !batch_first) return view;
    const int axis = view.dim() - 3;
    std::swap(view.sizes[axis], view.sizes[axis + 1]);
    std::swap(view.strides[axis], view.strides[axis + 1]);
    return view;
  }
};

Tensor placed(const Tensor& t, DType dtype, Device device) {
  if (!t.defined()) return t;
  NoGradGuard guard;
  return t.detach().to(device).to(dtype).contiguous();
}

/// Gradients of x, w_hh and b_hh of both directions, then of h0 and c0.
Gradients layer_gradient(const BackwardContext& c, std::span<const Tensor> g, const RnnPlan& p) {
  TL_CHECK(!c.recording(), AutogradError, p.op, "its gradient cannot be recorded (create_graph): it has no gradient of its own");
  const Tensor kept = c.saved(0), lengths = c.saved(3);
  const Placed<1> in(p.op, kept);
  const Pair w{placed(c.saved(1), p.dtype, in.device), placed(c.saved(2), p.dtype, in.device)};
  const bool split = p.kind == RnnKind::gru, lstm = p.kind == RnnKind::lstm;
  const std::int64_t width = rnn_gates(p.kind) * p.hidden;
  const Tensor grad_x = p.make_sequences(width, in.device), grad_r = split ? p.make_sequences(width, in.device) : Tensor();
  const Tensor grad_h0 = p.make_state(in.device), grad_c0 = lstm ? p.make_state(in.device) : Tensor();
  const Tensor grad_out = placed(g[0], p.dtype, in.device), grad_h_n = placed(g[1], p.dtype, in.device),
               grad_c_n = lstm ? placed(g[2], p.dtype, in.device) : Tensor();
  const View weights[] = {w[0].raw(), view_of(w[1])};
  TL_CALL(in, rnn_backward, p.kind, p.by_steps(grad_x), p.by_steps(grad_r), grad_h0.raw(), view_of(grad_c0), p.by_steps(grad_out),
          view_of(grad_h_n), view_of(grad_c_n), p.by_steps(kept), std::span(weights, static_cast<std::size_t>(p.directions)),
          view_of(lengths));
  Gradients grads(8);
  for (int d = 0; d < p.directions; ++d) {
    if (c.needs(d)) grads[static_cast<std::size_t>(d)] = grad_x.select(0, d);
    const Tensor gates = (split ? grad_r : grad_x).select(0, d).reshape({p.rows(), width});
    if (c.needs(4 + d)) grads[static_cast<std::size_t>(4 + d)] = sum(gates, {0});
    if (!c.needs(2 + d)) continue;
    const Tensor before = kept.select(0, d).reshape({p.rows(), kept.size(-1)});
    const auto product = [&](std::int64_t begin, std::int64_t end, std::int64_t state) {  // of some gates with a state that was kept
      return matmul(transpose(gates.slice(1, begin, end), 0, 1), before.narrow(1, state * p.hidden, p.hidden));
    };
    grads[static_cast<std::size_t>(2 + d)] = p.kind == RnnKind::gru_reset_before
                                                 ? concatenate({product(0, 2 * p.hidden, 0), product(2 * p.hidden, width, 4)}, 0)
                                                 : product(0, width, 0);
  }
  grads[6] = grad_h0, grads[7] = grad_c0;
  return grads;
}

struct LayerResult {
  Tensor out, h_n, c_n;
};

/// The recurrence of one layer. x: input products, one per direction.
LayerResult run_layer(const RnnPlan& p, const Pair& x, const Pair& w_hh, const Pair& b_hh, const Tensor& h0, const Tensor& c0,
                      const Tensor& lengths) {
  const TensorRef inputs[] = {x[0], x[1], w_hh[0], w_hh[1], b_hh[0], b_hh[1], h0, c0};
  const bool recorded = must_record(p.op, inputs), lstm = p.kind == RnnKind::lstm;
  const Placed<2> in(p.op, x[0], w_hh[0]);
  std::array<View, 2> xs, ws, bs;
  Pair kept_alive[3];
  for (std::size_t d = 0; d < static_cast<std::size_t>(p.directions); ++d) {
    kept_alive[0][d] = placed(x[d], p.dtype, in.device), kept_alive[1][d] = placed(w_hh[d], p.dtype, in.device),
    kept_alive[2][d] = placed(b_hh[d], p.dtype, in.device);
    xs[d] = p.by_steps(kept_alive[0][d]), ws[d] = kept_alive[1][d].raw(), bs[d] = view_of(kept_alive[2][d]);
  }
  const Tensor h_first = placed(h0, p.dtype, in.device), c_first = placed(c0, p.dtype, in.device);
  const Tensor steps = lengths.defined() ? placed(lengths, kInt64, in.device) : lengths;
  LayerResult r{p.make(p.sequence(p.directions * p.hidden), in.device), p.make_state(in.device), lstm ? p.make_state(in.device) : Tensor()};
  const Tensor kept = recorded ? p.make_sequences(rnn_kept(p.kind) * p.hidden, in.device) : Tensor();
  const auto count = static_cast<std::size_t>(p.directions);
  TL_CALL(in, rnn, p.kind, p.by_steps(r.out), r.h_n.raw(), view_of(r.c_n), p.by_steps(kept), std::span<const View>(xs).first(count),
          std::span<const View>(ws).first(count), std::span<const View>(bs).first(count), view_of(h_first), view_of(c_first),
          view_of(steps));
  if (!recorded) return r;
  Tensor* outputs[] = {&r.out, &r.h_n, &r.c_n};
  const TensorRef saved[] = {kept, w_hh[0], w_hh[1], steps};
  record_outputs(p.op, std::span(outputs, lstm ? 3u : 2u), inputs, saved,
                 [p](const BackwardContext& c, std::span<const Tensor> g) { return layer_gradient(c, g, p); });
  return r;
}

// ---------------------------------------------------------------------------------------------------------------------- checks

void check_weights(const RnnPlan& p, const RnnWeights& w, std::size_t at, std::int64_t inputs) {
  const std::int64_t width = rnn_gates(p.kind) * p.hidden;
  const auto check = [&](const char* name, const Tensor& t, const Dims& sizes) {
    TL_CHECK(t.sizes() == sizes, ShapeError, p.op, name, " of weights ", at, " has shape ", t.sizes(), ", expected ", sizes);
    TL_CHECK(is_floating(t.dtype()), DTypeError, p.op, name, " of weights ", at, " must be floating, it is ", t.dtype());
  };
  check("w_ih", w.w_ih, {width, inputs});
  check("w_hh", w.w_hh, {width, p.hidden});
  if (w.b_ih.defined()) check("b_ih", w.b_ih, {width});
  if (w.b_hh.defined()) check("b_hh", w.b_hh, {width});
}

RnnPlan make_plan(const char* op, RnnKind kind, const Tensor& x, const std::vector<RnnWeights>& weights, const RnnInputs& inputs,
                  const RnnOptions& options) {
  TL_CHECK(x.dim() == 3, ShapeError, op, "the input must be ", options.batch_first ? "[N, steps, inputs]" : "[steps, N, inputs]",
           ", it has shape ", x.sizes());
  TL_CHECK(is_floating(x.dtype()), DTypeError, op, "the input must be floating, it is ", x.dtype());
  const int directions = options.bidirectional ? 2 : 1;
  const auto count = static_cast<std::int64_t>(weights.size());
  TL_CHECK(count > 0 && count % directions == 0, ValueError, op, count, " sets of weights for ", directions, " direction(s) per layer");
  const Tensor& first = weights[0].w_hh;
  TL_CHECK(first.dim() == 2 && first.size(1) > 0, ShapeError, op, "w_hh of weights 0 must be [gates * H, H], it has shape ", first.sizes());
  const DType dtype = promote(x.dtype(), first.dtype()) == kFloat64 ? kFloat64 : kFloat32;
  const RnnPlan p{op,
                  kind,
                  dtype,
                  x.size(options.batch_first ? 1 : 0),
                  x.size(options.batch_first ? 0 : 1),
                  first.size(1),
                  directions,
                  options.batch_first};
  for (std::int64_t i = 0; i < count; ++i)
    check_weights(p, weights[static_cast<std::size_t>(i)], static_cast<std::size_t>(i), i < directions ? x.size(2) : directions * p.hidden);
  const Dims state{count, p.batch, p.hidden};
  for (const Tensor& t : {inputs.state.h, inputs.state.c})
    TL_CHECK(!t.defined() || t.sizes() == state, ShapeError, op, "an initial state has shape ", t.sizes(), ", expected ", state);
  if (inputs.lengths.defined())
    TL_CHECK(inputs.lengths.sizes() == Dims({p.batch}), ShapeError, op, "lengths have shape ", inputs.lengths.sizes(), ", expected ",
             Dims{p.batch});
  return p;
}

/// x with zeros past each sample's length, whatever stood there.
Tensor without_padding(const RnnPlan& p, const Tensor& x, const Tensor& lengths) {
  const Tensor step = arange(0, p.steps, 1, {.device = lengths.device()});
  const Tensor past = p.batch_first ? unsqueeze(step, 0) >= unsqueeze(lengths, 1) : unsqueeze(step, 1) >= unsqueeze(lengths, 0);
  return masked_fill(x, unsqueeze(past, 2), 0);
}

}  // namespace

RnnStack run_rnn(RnnKind kind, const Tensor& input, const std::vector<RnnWeights>& weights, const RnnInputs& inputs,
                 const RnnOptions& options) {
  const char* op = kind == RnnKind::lstm ? "LSTM" : kind == RnnKind::tanh || kind == RnnKind::relu ? "RNN" : "GRU";
  const RnnPlan p = make_plan(op, kind, input, weights, inputs, options);
  Tensor x = lowers(input, weights[0].w_ih) ? input : input.to(p.dtype), lengths;
  if (inputs.lengths.defined()) {
    lengths = as_index(op, inputs.lengths).to(Placed<2>(op, input, weights[0].w_hh).device);
    x = without_padding(p, x, lengths);
  }
  const std::size_t directions = static_cast<std::size_t>(p.directions), layers = weights.size() / directions;
  const auto layer_state = [&](const Tensor& all, std::size_t layer) {
    return !all.defined() || layers == 1 ? all : all.narrow(0, static_cast<std::int64_t>(layer * directions), p.directions);
  };
  RnnStack stack;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    Pair product, w_hh, b_hh;
    for (std::size_t d = 0; d < directions; ++d) {
      const RnnWeights& w = weights[layer * directions + d];
      Tensor bias = w.b_ih;
      if (kind == RnnKind::gru) b_hh[d] = w.b_hh;  // its part of the new gate is multiplied by the reset gate
      else if (w.b_hh.defined()) bias = bias.defined() ? bias + w.b_hh : w.b_hh;
      product[d] = linear(x, w.w_ih.to(p.dtype), bias);
      w_hh[d] = w.w_hh;
    }
    const LayerResult r =
        run_layer(p, product, w_hh, b_hh, layer_state(inputs.state.h, layer), layer_state(inputs.state.c, layer), lengths);
    x = layer + 1 < layers ? dropout(r.out, options.dropout) : r.out;
    stack.h.push_back(r.h_n);
    if (r.c_n.defined()) stack.c.push_back(r.c_n);
  }
  stack.output = x.to(input.dtype());
  return stack;
}

RnnResult joined(const RnnStack& stack) {
  const auto join = [](const std::vector<Tensor>& states) {
    return states.empty() ? Tensor() : states.size() == 1 ? states[0] : concatenate(states, 0);
  };
  return {stack.output, {join(stack.h), join(stack.c)}};
}

}  // namespace detail

RnnResult lstm(const Tensor& x, const std::vector<RnnWeights>& weights, const RnnInputs& inputs, const RnnOptions& options) {
  return detail::joined(detail::run_rnn(RnnKind::lstm, x, weights, inputs, options));
}
RnnResult gru(const Tensor& x, const std::vector<RnnWeights>& weights, const RnnInputs& inputs, const RnnOptions& options) {
  const RnnKind kind = options.reset == GruReset::after ? RnnKind::gru : RnnKind::gru_reset_before;
  return detail::joined(detail::run_rnn(kind, x, weights, inputs, options));
}
RnnResult rnn(const Tensor& x, const std::vector<RnnWeights>& weights, const RnnInputs& inputs, const RnnOptions& options) {
  const RnnKind kind = options.activation == RnnActivation::relu ? RnnKind::relu : RnnKind::tanh;
  return detail::joined(detail::run_rnn(kind, x, weights, inputs, options));
}

}  // namespace tensorlite
