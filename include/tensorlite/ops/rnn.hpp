// L3: recurrent layers. The input's product with the weights is one product for all steps; the recurrence is one kernel for a layer and its
// directions, forward and backward. Computed in float64 for float64, else in float32.
#pragma once

#include <tensorlite/ops/linalg.hpp>

namespace tensorlite {

/// Weights of one direction of one layer, as PyTorch lays them out: w_ih [gates * H, inputs], w_hh [gates * H, H], b_ih and b_hh [gates *
/// H] or undefined. Gates of an LSTM: i, f, g, o; of a GRU: r, z, n.
struct RnnWeights {
  Tensor w_ih, w_hh, b_ih, b_hh;
};

/// Hidden state, and an LSTM's cell state: [layers * directions, N, H]; undefined: zeros.
struct RnnState {
  Tensor h, c = {};
};

/// What differs from call to call.
struct RnnInputs {
  /// Steps of each sample, integers [N]; undefined: all. Past them the output is 0, the final state is that of the sample's own last step
  /// and the reverse direction starts there; what the input holds there has no effect and gets gradient 0.
  Tensor lengths = {};
  RnnState state = {};  ///< to start from
};

struct RnnResult {
  Tensor output;   ///< [steps, N, directions * H], or [N, steps, ...] with batch_first
  RnnState state;  ///< at the end; c of an LSTM only. To be passed on when a sequence goes on.
};

/// Where a GRU's reset gate applies. after: n = tanh(W x + b_ih + r * (W_hh h + b_hh)), as PyTorch, cuDNN and Keras's default;
/// before: n = tanh(W x + b_ih + W_hh (r * h) + b_hh), Keras's reset_after=False.
enum class GruReset : std::uint8_t { after, before };
enum class RnnActivation : std::uint8_t { tanh, relu };

struct RnnOptions {
  bool bidirectional = false;                      ///< weights then alternate: layer 0, layer 0 reverse, layer 1, ...
  bool batch_first = false;                        ///< input and output are [N, steps, ...]
  double dropout = 0;                              ///< between layers; for training only, so pass 0 in evaluation
  GruReset reset = GruReset::after;                ///< gru only
  RnnActivation activation = RnnActivation::tanh;  ///< rnn only
};

/// Long short-term memory, stacked. Shapes: x [steps, N, inputs] (batch_first: [N, steps, inputs]), one RnnWeights per layer and direction.
/// Gradients: x, weights, initial state; they cannot be recorded (create_graph), which throws AutogradError.
/// Throws ShapeError, DTypeError, ValueError naming a length outside 0..steps.
/// Source: Hochreiter and Schmidhuber 1997, in PyTorch's form: i, f, o = sigmoid, g = tanh; c = f c + i g; h = o tanh(c).
TL_API RnnResult lstm(const Tensor& x, const std::vector<RnnWeights>& weights, const RnnInputs& inputs = {},
                      const RnnOptions& options = {});

/// Gated recurrent unit, stacked; as lstm(). Source: Cho et al. 2014: r, z = sigmoid; h = (1 - z) n + z h.
TL_API RnnResult gru(const Tensor& x, const std::vector<RnnWeights>& weights, const RnnInputs& inputs = {}, const RnnOptions& options = {});

/// h = activation(W x + b_ih + W_hh h + b_hh), stacked; as lstm().
TL_API RnnResult rnn(const Tensor& x, const std::vector<RnnWeights>& weights, const RnnInputs& inputs = {}, const RnnOptions& options = {});

namespace detail {
/// A stack's output and each layer's final states, not yet joined.
struct RnnStack {
  Tensor output;
  std::vector<Tensor> h, c;
};
TL_API RnnStack run_rnn(RnnKind kind, const Tensor& x, const std::vector<RnnWeights>& weights, const RnnInputs& inputs,
                        const RnnOptions& options);
TL_API RnnResult joined(const RnnStack& stack);
}  // namespace detail

}  // namespace tensorlite
