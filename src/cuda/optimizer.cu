// optimizer_step: up to 128 parameters in one launch; PyTorch's formulas, or Keras's where the two differ.
#include "graph.hpp"
#include "launch.cuh"
#include "numeric.cuh"

#include <cmath>
#include <cstring>

namespace tensorlite::cuda {
namespace {

constexpr int kStates = 3, kMostTensors = 128, kPerThread = 4;
constexpr std::int64_t kChunk = kThreads * kPerThread;

/// One parameter with its gradient and states (null: not there).
struct Tensors {
  void *weight, *gradient, *state[kStates];
  std::int64_t count, first_chunk;
  DType weight_dtype, gradient_dtype, state_dtype[kStates];
};
struct TensorList {
  Tensors tensors[kMostTensors];
  int size = 0;
};

/// The hyperparameters, turned into the factors that the formulas use.
template <class S> struct Factors {
  OptimizerKind kind;
  S scale, shrink, decay, lr, momentum, rest, beta1, rest1, beta2, rest2, eps, root_scale, adam_step;
  bool has_momentum, nesterov, amsgrad, centered, keras;

  Factors() = default;
  Factors(OptimizerKind kind_, const OptimizerParams& p) : kind(kind_) {
    const bool decoupled = p.decoupled_decay || p.keras;
    const double correction1 = 1 - std::pow(p.beta1, static_cast<double>(p.step)),
                 root2 = std::sqrt(1 - std::pow(p.beta2, static_cast<double>(p.step)));
    scale = static_cast<S>(p.maximize ? -p.grad_scale : p.grad_scale);
    shrink = static_cast<S>(decoupled ? 1 - p.lr * p.weight_decay : 1);
    decay = static_cast<S>(decoupled ? 0 : p.weight_decay);
    lr = static_cast<S>(p.lr), momentum = static_cast<S>(p.momentum);
    rest = static_cast<S>(p.step <= 1 ? 1 : 1 - p.dampening);  // the first step takes the gradient as it is
    beta1 = static_cast<S>(p.beta1), rest1 = static_cast<S>(1 - p.beta1), beta2 = static_cast<S>(p.beta2),
    rest2 = static_cast<S>(1 - p.beta2);
    eps = static_cast<S>(p.eps);
    // PyTorch corrects the root before eps is added, Keras corrects the step and adds eps to the uncorrected root.
    root_scale = static_cast<S>(p.keras ? 1 : 1 / root2);
    adam_step = static_cast<S>(p.keras ? p.lr * root2 / correction1 : p.lr / correction1);
    has_momentum = p.momentum != 0;
    nesterov = p.nesterov, amsgrad = p.amsgrad, centered = p.centered, keras = p.keras;
  }

  __device__ void sgd(S& w, S g, S (&state)[kStates]) const {
    if (!has_momentum) {
      w -= lr * g;
    } else if (keras) {
      state[0] = ::fma(momentum, state[0], -(lr * g));
      w += nesterov ? ::fma(momentum, state[0], -(lr * g)) : state[0];
    } else {
      state[0] = ::fma(momentum, state[0], rest * g);
      w -= lr * (nesterov ? ::fma(momentum, state[0], g) : state[0]);
    }
  }
  __device__ void adam(S& w, S g, S (&state)[kStates]) const {
    state[0] = ::fma(beta1, state[0], rest1 * g);
    state[1] = ::fma(beta2, state[1], rest2 * g * g);
    if (amsgrad) state[2] = state[1] > state[2] ? state[1] : state[2];
    w -= adam_step * state[0] / ::fma(::sqrt(amsgrad ? state[2] : state[1]), root_scale, eps);
  }
  __device__ void rmsprop(S& w, S g, S (&state)[kStates]) const {
    state[0] = ::fma(beta2, state[0], rest2 * g * g);
    S square = state[0];
    if (centered) {
      state[2] = ::fma(beta2, state[2], rest2 * g);
      square -= state[2] * state[2];
      square = square < 0 ? S(0) : square;  // rounding alone can make it negative
    }
    const S step = g / (::sqrt(square) + eps);
    if (!has_momentum) {
      w -= lr * step;
    } else {  // Keras keeps the learning rate in the momentum
      state[1] = ::fma(momentum, state[1], keras ? lr * step : step);
      w -= keras ? state[1] : lr * state[1];
    }
  }
  __device__ void adadelta(S& w, S g, S (&state)[kStates]) const {
    state[0] = ::fma(beta2, state[0], rest2 * g * g);
    const S delta = ::sqrt(state[1] + eps) / ::sqrt(state[0] + eps) * g;
    state[1] = ::fma(beta2, state[1], rest2 * delta * delta);
    w -= lr * delta;
  }
  __device__ void operator()(S& w, S gradient, S (&state)[kStates]) const {
    const S g = ::fma(decay, w, gradient * scale);
    w *= shrink;
    switch (kind) {
      case OptimizerKind::sgd: return sgd(w, g, state);
      case OptimizerKind::adam: return adam(w, g, state);
      case OptimizerKind::rmsprop: return rmsprop(w, g, state);
      case OptimizerKind::adadelta: return adadelta(w, g, state);
    }
  }
};

/// Element i of any floating-point type; 0 of null.
template <class S> __device__ S get(const void* data, DType dtype, std::int64_t i) {
  if (!data) return S(0);
  switch (dtype) {
    case DType::float64: return static_cast<S>(static_cast<const double*>(data)[i]);
    case DType::float16: return load(static_cast<const float16*>(data)[i]);
    case DType::bfloat16: return load(static_cast<const bfloat16*>(data)[i]);
    default: return static_cast<const float*>(data)[i];
  }
}
template <class S> __device__ void put(void* data, DType dtype, std::int64_t i, S value) {
  if (!data) return;
  switch (dtype) {
    case DType::float64: static_cast<double*>(data)[i] = value; break;
    case DType::float16: static_cast<float16*>(data)[i] = store<float16>(static_cast<float>(value)); break;
    case DType::bfloat16: static_cast<bfloat16*>(data)[i] = store<bfloat16>(static_cast<float>(value)); break;
    default: static_cast<float*>(data)[i] = static_cast<float>(value);
  }
}

/// What a recorded call reads in each run of its graph.
struct RecordedFactors {
  Factors<float> narrow;
  Factors<double> wide;
  template <class S> __device__ const Factors<S>& get() const {
    if constexpr (std::is_same_v<S, double>) return wide;
    else return narrow;
  }
};
static_assert(sizeof(RecordedFactors) <= kStepBytes && std::is_trivially_copyable_v<RecordedFactors>);

/// kRecorded: `recorded` has the factors, not the call.
template <class S, bool kRecorded>
__global__ void __launch_bounds__(kThreads) optimizer_kernel(const __grid_constant__ TensorList list, const Factors<S> given,
                                                             const RecordedFactors* recorded, std::int64_t chunks) {
  Factors<S> factors;
  if constexpr (kRecorded) factors = recorded->get<S>();
  else factors = given;
  for (std::int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    int low = 0;
    for (int high = list.size; low + 1 < high;) {
      const int middle = (low + high) / 2;
      (list.tensors[middle].first_chunk <= chunk ? low : high) = middle;
    }
    const Tensors& t = list.tensors[low];
    const std::int64_t begin = (chunk - t.first_chunk) * kChunk + threadIdx.x;
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      const std::int64_t i = begin + j * kThreads;
      if (i >= t.count) break;
      S weight = get<S>(t.weight, t.weight_dtype, i), state[kStates];
      for (int s = 0; s < kStates; ++s) state[s] = get<S>(t.state[s], t.state_dtype[s], i);
      factors(weight, get<S>(t.gradient, t.gradient_dtype, i), state);
      put(t.weight, t.weight_dtype, i, weight);
      for (int s = 0; s < kStates; ++s) put(t.state[s], t.state_dtype[s], i, state[s]);
    }
  }
}

template <class S>
void flush(const Context& context, TensorList& list, const Factors<S>& factors, const RecordedFactors* recorded, std::int64_t& chunks) {
  if (chunks > 0) {
    auto* kernel = recorded ? &optimizer_kernel<S, true> : &optimizer_kernel<S, false>;
    kernel<<<blocks_for(chunks, 1), kThreads, 0, stream_of(context)>>>(list, factors, recorded, chunks);
    check_launch(context);
  }
  list.size = 0;
  chunks = 0;
}

/// Every parameter whose type is computed in S.
template <class S>
void step_all(const Context& context, OptimizerKind kind, std::span<const View> parameters, std::span<const View> gradients,
              std::span<const View> states, const OptimizerParams& params, const RecordedFactors* recorded) {
  const Factors<S> factors(kind, params);
  TensorList list;
  std::int64_t chunks = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const View& weight = parameters[i];
    if ((weight.dtype == kFloat64) != std::is_same_v<S, double> || !gradients[i].present || weight.numel() == 0) continue;
    Tensors& t = list.tensors[list.size++];
    t = {.weight = weight.data,
         .gradient = gradients[i].data,
         .state = {},
         .count = weight.numel(),
         .first_chunk = chunks,
         .weight_dtype = weight.dtype,
         .gradient_dtype = gradients[i].dtype,
         .state_dtype = {}};
    for (std::size_t s = 0; s < kStates && s * parameters.size() + i < states.size(); ++s) {
      const View& state = states[s * parameters.size() + i];
      t.state[s] = state.present ? state.data : nullptr;
      t.state_dtype[s] = state.dtype;
    }
    chunks += (t.count + kChunk - 1) / kChunk;
    if (list.size == kMostTensors) flush(context, list, factors, recorded, chunks);
  }
  flush(context, list, factors, recorded, chunks);
}

}  // namespace

void optimizer_step(const Context& context, OptimizerKind kind, std::span<const View> parameters, std::span<const View> gradients,
                    std::span<const View> states, OptimizerParams params) {
  for (const View& parameter : parameters)
    TL_CHECK(is_floating(parameter.dtype), DTypeError, context.op, "needs floating-point parameters, got ", parameter.dtype);
  const auto* recorded = static_cast<const RecordedFactors*>(next_step(context, kind));
  step_all<float>(context, kind, parameters, gradients, states, params, recorded);
  step_all<double>(context, kind, parameters, gradients, states, params, recorded);
}

void write_step(OptimizerKind kind, const OptimizerParams& params, unsigned char* out) {
  const RecordedFactors factors{Factors<float>(kind, params), Factors<double>(kind, params)};
  std::memcpy(out, &factors, sizeof factors);
}

}  // namespace tensorlite::cuda
