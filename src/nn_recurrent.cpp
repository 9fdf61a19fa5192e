// Out-of-line L4: recurrent layers.
#include <tensorlite/nn/recurrent.hpp>

#include <tensorlite/detail/rnn_cell.hpp>

#include <cmath>

namespace tensorlite::nn {

Recurrent::Recurrent(const char* kind, RnnKind cell, const RecurrentOptions& options) : Module(kind), cell_(cell), options_(options) {
  TL_CHECK(options.input_size > 0 && options.hidden_size > 0 && options.num_layers > 0, ValueError, kind,
           "input_size, hidden_size and num_layers must be positive, they are ", options.input_size, ", ", options.hidden_size, " and ",
           options.num_layers);
  TL_CHECK(options.dropout >= 0 && options.dropout <= 1, ValueError, kind, "the dropout probability must be in [0, 1], it is ",
           options.dropout);
  const std::int64_t directions = options.bidirectional ? 2 : 1;
  for (std::int64_t layer = 0; layer < options.num_layers; ++layer)
    for (std::int64_t d = 0; d < directions; ++d)
      add_weights("_l" + std::to_string(layer) + (d == 1 ? "_reverse" : ""),
                  layer == 0 ? options.input_size : directions * options.hidden_size);
}

void Recurrent::add_weights(const std::string& suffix, std::int64_t inputs) {
  const std::int64_t hidden = options_.hidden_size, gates = tensorlite::detail::rnn_gates(cell_) * hidden;
  const TensorOptions place{.dtype = options_.dtype, .device = options_.device};
  const Tensor w_ih = empty({gates, inputs}, place), w_hh = empty({gates, hidden}, place);
  const Tensor b_ih = options_.bias ? empty({gates}, place) : Tensor(), b_hh = options_.bias ? empty({gates}, place) : Tensor();
  if (options_.init == Init::pytorch) {
    const double bound = 1 / std::sqrt(static_cast<double>(hidden));
    for (const Tensor& t : {w_ih, w_hh, b_ih, b_hh})
      if (t.defined()) init::uniform_(t, -bound, bound);
  } else {
    init::layer_(options_.init, w_ih, b_ih);
    init::orthogonal_(w_hh);
    if (b_hh.defined()) init::zeros_(b_hh);
    if (b_ih.defined() && cell_ == RnnKind::lstm) init::ones_(b_ih.narrow(0, hidden, hidden));
  }
  register_parameter("weight_ih" + suffix, w_ih);
  register_parameter("weight_hh" + suffix, w_hh);
  register_parameter("bias_ih" + suffix, b_ih);
  register_parameter("bias_hh" + suffix, b_hh);
}

tensorlite::detail::RnnStack Recurrent::stack(const Tensor& x, const RnnInputs& inputs) const {
  std::vector<RnnWeights> weights;
  for (std::size_t i = 0; i < state().parameters.size(); i += 4)
    weights.push_back({own_parameter(i), own_parameter(i + 1), own_parameter(i + 2), own_parameter(i + 3)});
  const RnnOptions options{
      .bidirectional = options_.bidirectional, .batch_first = options_.batch_first, .dropout = is_training() ? options_.dropout : 0};
  return tensorlite::detail::run_rnn(cell_, x, weights, inputs, options);
}

Tensor Recurrent::forward(const Tensor& x) const { return stack(x, {}).output; }
RnnResult Recurrent::run(const Tensor& x, const RnnInputs& inputs) const { return tensorlite::detail::joined(stack(x, inputs)); }

}  // namespace tensorlite::nn
