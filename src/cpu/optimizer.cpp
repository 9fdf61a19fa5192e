// optimizer_step: all parameters in one parallel region. PyTorch's formulas, or Keras's where the two differ.
#include "kernels.hpp"

#include "dispatch.hpp"
#include "move.hpp"
#include "vec.hpp"

#include <cmath>
#include <vector>

namespace tensorlite::cpu::TL_CPU_NS {
namespace {

constexpr std::int64_t kBlock = 512, kChunk = 8 * kBlock, kChunkGrain = 4;
constexpr int kStates = 3;

/// A block's operands in the compute type. A state that is not there is null: it reads as 0 and is not written.
template <class S> struct Block {
  S* weight;
  const S* gradient;
  S* state[kStates];
  std::int64_t count;
};

/// f(weight, gradient, states) on every vector of the block; f changes weight and states.
template <class S, class F> void for_each_vector(const Block<S>& b, F f) {
  using V = Vec<S>;
  for (std::int64_t i = 0; i < b.count; i += V::kSize) {
    const std::int64_t n = std::min<std::int64_t>(V::kSize, b.count - i);
    const bool whole = n == V::kSize;
    const auto load = [&](const S* from) { return !from ? V(0) : whole ? V::load(from + i) : V::load(from + i, n); };
    const auto store = [&](V v, S* to) { whole ? v.store(to + i) : v.store(to + i, n); };
    V weight = load(b.weight), state[kStates] = {load(b.state[0]), load(b.state[1]), load(b.state[2])};
    f(weight, load(b.gradient), state);
    store(weight, b.weight);
    for (int s = 0; s < kStates; ++s)
      if (b.state[s]) store(state[s], b.state[s]);
  }
}

/// Gradient scaling and weight decay, which all kinds begin with.
template <class S> struct Prologue {
  using V = Vec<S>;
  V scale, shrink, decay;
  explicit Prologue(const OptimizerParams& p) : scale(p.maximize ? -p.grad_scale : p.grad_scale), shrink(1), decay(0) {
    if (p.decoupled_decay || p.keras) shrink = V(1 - p.lr * p.weight_decay);
    else decay = V(p.weight_decay);
  }
  V operator()(V& weight, V gradient) const {
    const V g = fma(decay, weight, gradient * scale);
    weight *= shrink;
    return g;
  }
};

template <class S> void sgd(const OptimizerParams& p, const Block<S>& block) {
  using V = Vec<S>;
  const Prologue<S> begin(p);
  const V lr(p.lr), momentum(p.momentum), rest(p.step <= 1 ? 1 : 1 - p.dampening);  // the first step takes the gradient as it is
  for_each_vector(block, [&](V& w, V gradient, V(&state)[kStates]) {
    const V g = begin(w, gradient);
    if (p.momentum == 0) {
      w -= lr * g;
    } else if (p.keras) {
      state[0] = fma(momentum, state[0], -(lr * g));
      w += p.nesterov ? fma(momentum, state[0], -(lr * g)) : state[0];
    } else {
      state[0] = fma(momentum, state[0], rest * g);
      w -= lr * (p.nesterov ? fma(momentum, state[0], g) : state[0]);
    }
  });
}

template <class S> void adam(const OptimizerParams& p, const Block<S>& block) {
  using V = Vec<S>;
  const Prologue<S> begin(p);
  const double correction1 = 1 - std::pow(p.beta1, static_cast<double>(p.step)),
               root2 = std::sqrt(1 - std::pow(p.beta2, static_cast<double>(p.step)));
  const V beta1(p.beta1), rest1(1 - p.beta1), beta2(p.beta2), rest2(1 - p.beta2), eps(p.eps);
  // PyTorch corrects the root before eps is added, Keras corrects the step and adds eps to the uncorrected root.
  const V root_scale(p.keras ? 1 : 1 / root2), step(p.keras ? p.lr * root2 / correction1 : p.lr / correction1);
  for_each_vector(block, [&](V& w, V gradient, V(&state)[kStates]) {
    const V g = begin(w, gradient);
    state[0] = fma(beta1, state[0], rest1 * g);
    state[1] = fma(beta2, state[1], rest2 * g * g);
    if (p.amsgrad) state[2] = select(state[1] > state[2], state[1], state[2]);
    const V root = sqrt(p.amsgrad ? state[2] : state[1]);
    w -= step * state[0] / fma(root, root_scale, eps);
  });
}

template <class S> void rmsprop(const OptimizerParams& p, const Block<S>& block) {
  using V = Vec<S>;
  const Prologue<S> begin(p);
  const V lr(p.lr), alpha(p.beta2), rest(1 - p.beta2), eps(p.eps), momentum(p.momentum);
  for_each_vector(block, [&](V& w, V gradient, V(&state)[kStates]) {
    const V g = begin(w, gradient);
    state[0] = fma(alpha, state[0], rest * g * g);
    V square = state[0];
    if (p.centered) {
      state[2] = fma(alpha, state[2], rest * g);
      square -= state[2] * state[2];
      square = select(square < V(0), V(0), square);  // rounding alone can make it negative
    }
    const V step = g / (sqrt(square) + eps);
    if (p.momentum == 0) {
      w -= lr * step;
    } else {  // Keras keeps the learning rate in the momentum
      state[1] = fma(momentum, state[1], p.keras ? lr * step : step);
      w -= p.keras ? state[1] : lr * state[1];
    }
  });
}

template <class S> void adadelta(const OptimizerParams& p, const Block<S>& block) {
  using V = Vec<S>;
  const Prologue<S> begin(p);
  const V lr(p.lr), rho(p.beta2), rest(1 - p.beta2), eps(p.eps);
  for_each_vector(block, [&](V& w, V gradient, V(&state)[kStates]) {
    const V g = begin(w, gradient);
    state[0] = fma(rho, state[0], rest * g * g);
    const V delta = sqrt(state[1] + eps) / sqrt(state[0] + eps) * g;
    state[1] = fma(rho, state[1], rest * delta * delta);
    w -= lr * delta;
  });
}

template <class S> void step_block(OptimizerKind kind, const OptimizerParams& params, const Block<S>& block) {
  switch (kind) {
    case OptimizerKind::sgd: return sgd(params, block);
    case OptimizerKind::adam: return adam(params, block);
    case OptimizerKind::rmsprop: return rmsprop(params, block);
    case OptimizerKind::adadelta: return adadelta(params, block);
  }
}

/// One operand of one parameter, seen as blocks of S: in place when it is of that type, else through a buffer.
template <class S> class Operand {
 public:
  Operand(const View& view, std::int64_t begin, std::int64_t count) : count_(count) {
    if (!view) return;
    place_ = view.ptr<char>() + begin * size_of(view.dtype);
    if (view.dtype == dtype_of<S>) return;
    store_ = mover(dtype_of<S>, view.dtype);
    mover(view.dtype, dtype_of<S>)(buffer_, 1, place_, 1, count);
  }
  S* data() { return store_ ? buffer_ : reinterpret_cast<S*>(place_); }
  void write_back() {
    if (store_) store_(place_, 1, buffer_, 1, count_);
  }

 private:
  std::int64_t count_;
  char* place_ = nullptr;
  Mover store_ = nullptr;
  alignas(64) S buffer_[kBlock];
};

struct Step {
  OptimizerKind kind;
  const OptimizerParams& params;
  std::span<const View> parameters, gradients, states;

  const View& state(std::size_t s, std::size_t parameter) const {
    static const View absent;
    const std::size_t at = s * parameters.size() + parameter;
    return at < states.size() ? states[at] : absent;
  }
  template <class S> bool needs_no_buffers(std::size_t i) const {
    bool plain = gradients[i].dtype == dtype_of<S>;
    for (const View* view : {&parameters[i], &state(0, i), &state(1, i), &state(2, i)})
      plain = plain && (!*view || view->dtype == dtype_of<S>);
    return plain;
  }
  template <class S> void run(std::size_t i, std::int64_t begin, std::int64_t end) const {
    const std::int64_t most = needs_no_buffers<S>(i) ? kChunk : kBlock;
    for (; begin < end; begin += most) {
      const std::int64_t count = std::min(most, end - begin);
      Operand<S> weight(parameters[i], begin, count), gradient(gradients[i], begin, count);
      Operand<S> s0(state(0, i), begin, count), s1(state(1, i), begin, count), s2(state(2, i), begin, count);
      step_block<S>(kind, params, {weight.data(), gradient.data(), {s0.data(), s1.data(), s2.data()}, count});
      for (Operand<S>* changed : {&weight, &s0, &s1, &s2}) changed->write_back();
    }
  }
};

}  // namespace

void optimizer_step(const Context& context, OptimizerKind kind, std::span<const View> parameters, std::span<const View> gradients,
                    std::span<const View> states, OptimizerParams params) {
  std::vector<std::int64_t> first_chunk = {0};  // of every parameter; one without a gradient has none
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!is_floating(parameters[i].dtype)) throw_dtype(context.op, parameters[i].dtype, "a floating-point dtype");
    first_chunk.push_back(first_chunk.back() + (gradients[i] ? (parameters[i].numel() + kChunk - 1) / kChunk : 0));
  }
  const Step step{kind, params, parameters, gradients, states};
  parallel_for(first_chunk.back(), kChunkGrain, [&](std::int64_t begin, std::int64_t end) {
    std::size_t i = static_cast<std::size_t>(std::upper_bound(first_chunk.begin(), first_chunk.end(), begin) - first_chunk.begin()) - 1;
    for (std::int64_t chunk = begin; chunk < end; ++chunk) {
      while (chunk >= first_chunk[i + 1]) ++i;
      const std::int64_t from = (chunk - first_chunk[i]) * kChunk, to = std::min(from + kChunk, parameters[i].numel());
      if (parameters[i].dtype == kFloat64) step.run<double>(i, from, to);
      else step.run<float>(i, from, to);
    }
  });
}

}  // namespace tensorlite::cpu::TL_CPU_NS
