// L4: recurrent layers. Parameters are named and laid out as PyTorch's: weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, then those of
// the reverse direction (weight_ih_l0_reverse, ...), then layer 1.
#pragma once

#include <tensorlite/nn/init.hpp>
#include <tensorlite/nn/module.hpp>
#include <tensorlite/ops/rnn.hpp>

namespace tensorlite::nn {

struct RecurrentOptions {
  std::int64_t input_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_layers = 1;
  bool bias = true;
  bool batch_first = false;  ///< input and output are [N, steps, ...], else [steps, N, ...]
  bool bidirectional = false;
  double dropout = 0;                              ///< between layers, in training
  GruReset reset = GruReset::after;                ///< GRU only
  RnnActivation activation = RnnActivation::tanh;  ///< RNN only
  /// pytorch: everything uniform in +-1/sqrt(hidden_size). keras: glorot_uniform, orthogonal recurrent weights, zero biases but 1 for an
  /// LSTM's forget gate. he: keras with he_uniform for the input's weights.
  Init init = Init::pytorch;
  std::optional<DType> dtype = {};
  std::optional<Device> device = {};
};

/// What LSTM, GRU and RNN share. Throws ValueError for sizes that make no layer.
class TL_API Recurrent : public Module {
 public:
  /// All steps' outputs: [steps, N, directions * hidden_size].
  Tensor forward(const Tensor& x) const override;
  /// Outputs and final state, of samples of different lengths and from a given state if wanted: `lstm.run(x, {.lengths = lengths})`.
  RnnResult run(const Tensor& x, const RnnInputs& inputs = {}) const;
  const RecurrentOptions& options() const { return options_; }

 protected:
  Recurrent(const char* kind, RnnKind cell, const RecurrentOptions& options);

 private:
  void add_weights(const std::string& suffix, std::int64_t inputs);
  tensorlite::detail::RnnStack stack(const Tensor& x, const RnnInputs& inputs) const;
  RnnKind cell_;
  RecurrentOptions options_;
};

/// nn::LSTM{{.input_size = 512, .hidden_size = 128, .num_layers = 2, .bidirectional = true}}
class TL_API LSTM : public Recurrent {
 public:
  explicit LSTM(const RecurrentOptions& options) : Recurrent("LSTM", RnnKind::lstm, options) {}
};
class TL_API GRU : public Recurrent {
 public:
  explicit GRU(const RecurrentOptions& options)
      : Recurrent("GRU", options.reset == GruReset::after ? RnnKind::gru : RnnKind::gru_reset_before, options) {}
};
class TL_API RNN : public Recurrent {
 public:
  explicit RNN(const RecurrentOptions& options)
      : Recurrent("RNN", options.activation == RnnActivation::relu ? RnnKind::relu : RnnKind::tanh, options) {}
};

}  // namespace tensorlite::nn
