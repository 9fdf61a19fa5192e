// The table of operations under test. Their inputs, results and gradients in float64 are in tests/reference/cases.npz, by PyTorch; the same
// rows are run in every dtype, layout and on every device.
#pragma once

#include "test_tensors.hpp"

#include <tensorlite/io.hpp>

#include <functional>
#include <map>
#include <string>
#include <vector>

using namespace tensorlite;

using Inputs = std::vector<Tensor>;
using Op = std::function<Tensor(const Inputs&)>;
inline Tensor none;  // running statistics that are not kept

/// Output and final states of a recurrent layer in one row.
inline Tensor one_row(const RnnResult& r) {
  std::vector<Tensor> parts{flatten(r.output), flatten(r.state.h)};
  if (r.state.c.defined()) parts.push_back(flatten(r.state.c));
  return concatenate(parts, 0);
}
/// Weights from in[first] on, four tensors each.
inline std::vector<RnnWeights> weights_from(const Inputs& in, std::size_t first) {
  std::vector<RnnWeights> weights;
  for (std::size_t i = first; i < in.size(); i += 4) weights.push_back({in[i], in[i + 1], in[i + 2], in[i + 3]});
  return weights;
}

#define TL_ROW(name)                                    \
  {                                                     \
#name, [](const Inputs& in) { return name(in[0]); } \
  }
#define TL_ROW2(name)                                          \
  {                                                            \
#name, [](const Inputs& in) { return name(in[0], in[1]); } \
  }

inline const std::map<std::string, Op>& op_cases() {
  static const std::map<std::string, Op> table = {
      TL_ROW(abs),
      TL_ROW(acos),
      TL_ROW(acosh),
      TL_ROW(asin),
      TL_ROW(asinh),
      TL_ROW(atan),
      TL_ROW(atanh),
      TL_ROW(cos),
      TL_ROW(cosh),
      TL_ROW(erf),
      TL_ROW(erfc),
      TL_ROW(exp),
      TL_ROW(exp2),
      TL_ROW(expm1),
      TL_ROW(log),
      TL_ROW(log10),
      TL_ROW(log1p),
      TL_ROW(log2),
      TL_ROW(neg),
      TL_ROW(reciprocal),
      TL_ROW(rsqrt),
      TL_ROW(sigmoid),
      TL_ROW(sin),
      TL_ROW(sinh),
      TL_ROW(sqrt),
      TL_ROW(square),
      TL_ROW(tan),
      TL_ROW(tanh),
      TL_ROW(relu),
      TL_ROW(relu6),
      TL_ROW(selu),
      TL_ROW(gelu),
      TL_ROW(silu),
      TL_ROW(mish),
      TL_ROW(softplus),
      TL_ROW(softsign),
      TL_ROW(elu),
      TL_ROW(leaky_relu),
      TL_ROW(gelu_tanh),
      TL_ROW(floor),
      TL_ROW(ceil),
      TL_ROW(round),
      TL_ROW(trunc),
      TL_ROW(sign),
      TL_ROW2(add),
      TL_ROW2(sub),
      TL_ROW2(mul),
      TL_ROW2(div),
      TL_ROW2(maximum),
      TL_ROW2(minimum),
      TL_ROW2(atan2),
      TL_ROW2(hypot),
      TL_ROW2(pow),
      TL_ROW2(remainder),
      TL_ROW2(matmul),
      TL_ROW2(cross_entropy),
      TL_ROW2(mse_loss),
      TL_ROW2(l1_loss),
      TL_ROW2(bce_with_logits),
      TL_ROW2(embedding),
      {"hardsigmoid", [](const Inputs& in) { return hard_sigmoid(in[0]); }},
      {"hardswish", [](const Inputs& in) { return hard_swish(in[0]); }},
      {"logsigmoid", [](const Inputs& in) { return log_sigmoid(in[0]); }},
      {"clamp", [](const Inputs& in) { return clamp(in[0], -0.5, 0.7); }},
      {"pow_scalar", [](const Inputs& in) { return pow(in[0], 3); }},
      {"where", [](const Inputs& in) { return where(in[0] > in[1], in[0] * 2, in[1]); }},
      {"sum_axes",
       [](const Inputs& in) {
         return sum(in[0], {0, 2});
       }},
      {"mean_keepdim", [](const Inputs& in) { return mean(in[0], {1}, {.keepdim = true}); }},
      {"prod", [](const Inputs& in) { return prod(in[0], {1}); }},
      {"max",
       [](const Inputs& in) {
         return max(in[0], {0, 2});
       }},
      {"min", [](const Inputs& in) { return min(in[0], {1}); }},
      {"var",
       [](const Inputs& in) {
         return var(in[0], {0, 2});
       }},
      {"std_biased", [](const Inputs& in) { return tensorlite::std(in[0], {1}, {.correction = 0}); }},
      {"norm", [](const Inputs& in) { return norm(in[0], {1}); }},
      {"logsumexp",
       [](const Inputs& in) {
         return logsumexp(in[0], {0, 1});
       }},
      {"cumsum", [](const Inputs& in) { return cumsum(in[0], 1); }},
      {"argmax", [](const Inputs& in) { return argmax(in[0], 1); }},
      {"matmul_batched", [](const Inputs& in) { return matmul(in[0], in[1]); }},
      {"matmul_vector", [](const Inputs& in) { return matmul(in[0], in[1]); }},
      {"vector_matmul", [](const Inputs& in) { return matmul(in[0], in[1]); }},
      {"linear", [](const Inputs& in) { return linear(in[0], in[1], in[2]); }},
      {"pad",
       [](const Inputs& in) {
         return pad(in[0], {0, 1, 1, 2}, 0.5);
       }},
      {"flip",
       [](const Inputs& in) {
         return flip(in[0], {0, 2});
       }},
      {"gather", [](const Inputs& in) { return gather(in[0], 1, in[1]); }},
      {"index_select", [](const Inputs& in) { return index_select(in[0], 1, in[1]); }},
      {"concatenate",
       [](const Inputs& in) {
         return concatenate({in[0], in[1]}, 1);
       }},
      {"conv2d", [](const Inputs& in) { return conv2d(in[0], in[1], in[2]); }},
      {"conv2d_stride_pad",
       [](const Inputs& in) {
         return conv2d(in[0], in[1], in[2], {.stride = {2, 1}, .padding = {1, 2}});
       }},
      {"conv2d_dilation", [](const Inputs& in) { return conv2d(in[0], in[1], in[2], {.dilation = 2}); }},
      {"conv2d_groups", [](const Inputs& in) { return conv2d(in[0], in[1], in[2], {.padding = 1, .groups = 2}); }},
      {"conv2d_depthwise", [](const Inputs& in) { return conv2d(in[0], in[1], in[2], {.stride = 2, .padding = 1, .groups = 4}); }},
      {"conv2d_1x1", [](const Inputs& in) { return conv2d(in[0], in[1], in[2]); }},
      {"conv2d_asymmetric",
       [](const Inputs& in) {
         return conv2d(in[0], in[1], in[2], {.stride = 2, .padding = {2, 0, 0, 1}});
       }},
      {"conv_transpose2d",
       [](const Inputs& in) { return conv_transpose2d(in[0], in[1], in[2], {.stride = 2, .padding = 1, .output_padding = 1}); }},
      {"max_pool2d", [](const Inputs& in) { return max_pool2d(in[0], 2); }},
      {"max_pool2d_overlap",
       [](const Inputs& in) { return max_pool2d(in[0], 3, {.stride = 2, .padding = 1, .rounding = Rounding::ceil}); }},
      {"avg_pool2d",
       [](const Inputs& in) {
         return avg_pool2d(in[0], 3, {.stride = 2, .padding = 1, .rounding = Rounding::ceil, .count_include_pad = false});
       }},
      {"adaptive_avg_pool2d",
       [](const Inputs& in) {
         return adaptive_avg_pool2d(in[0], {3, 2});
       }},
      {"softmax", [](const Inputs& in) { return softmax(in[0], 1); }},
      {"log_softmax", [](const Inputs& in) { return log_softmax(in[0], -1); }},
      {"batch_norm", [](const Inputs& in) { return batch_norm_train(in[0], in[1], in[2], none, none); }},
      {"layer_norm",
       [](const Inputs& in) {
         return layer_norm(in[0], {3, 4}, in[1], in[2]);
       }},
      {"cross_entropy_smooth",
       [](const Inputs& in) { return cross_entropy(in[0], in[1], {.label_smoothing = 0.1, .reduction = Reduction::sum}); }},
      {"cross_entropy_soft", [](const Inputs& in) { return cross_entropy(in[0], in[1]); }},
      {"nll_loss", [](const Inputs& in) { return nll_loss(in[0], in[1], {.reduction = Reduction::none}); }},
      {"lstm", [](const Inputs& in) { return one_row(lstm(in[0], weights_from(in, 1))); }},
      {"lstm_stacked",
       [](const Inputs& in) {
         return one_row(lstm(in[0], weights_from(in, 2), {.lengths = in[1]}, {.bidirectional = true, .batch_first = true}));
       }},
      {"gru", [](const Inputs& in) { return one_row(gru(in[0], weights_from(in, 1))); }},
      {"gru_stacked",
       [](const Inputs& in) { return one_row(gru(in[0], weights_from(in, 2), {.lengths = in[1]}, {.bidirectional = true})); }},
      {"gru_reset_before", [](const Inputs& in) { return one_row(gru(in[0], weights_from(in, 1), {}, {.reset = GruReset::before})); }},
      {"rnn", [](const Inputs& in) { return one_row(rnn(in[0], weights_from(in, 2), {.lengths = in[1]}, {.bidirectional = true})); }},
      {"rnn_relu", [](const Inputs& in) { return one_row(rnn(in[0], weights_from(in, 1), {}, {.activation = RnnActivation::relu})); }},
      {"ctc_loss", [](const Inputs& in) { return ctc_loss(log_softmax(in[0], 2), in[1], in[2], in[3]); }},
      {"ctc_loss_each",
       [](const Inputs& in) {
         return ctc_loss(log_softmax(in[0], 2), in[1], in[2], in[3], {.blank = 4, .reduction = Reduction::none, .zero_infinity = true});
       }},
      {"ctc_loss_with_logits",
       [](const Inputs& in) {
         return ctc_loss_with_logits(in[0], in[1], in[2], in[3], {.blank = 4, .reduction = Reduction::sum, .zero_infinity = true});
       }},
      {"smooth_l1_loss", [](const Inputs& in) { return smooth_l1_loss(in[0], in[1], {.beta = 0.5}); }},
  };
  return table;
}

inline const std::map<std::string, Tensor>& reference_arrays() {
  static const std::map<std::string, Tensor> loaded = [] {
    const auto file = io::load_npz(TENSORLITE_SOURCE_DIR "/tests/reference/cases.npz");
    return std::map<std::string, Tensor>(file.begin(), file.end());
  }();
  return loaded;
}

/// The stored float64 (or integer) inputs of a case.
inline Inputs stored_inputs(const std::string& name) {
  Inputs inputs;
  for (int i = 0; reference_arrays().count(name + ".in" + std::to_string(i)); ++i)
    inputs.push_back(reference_arrays().at(name + ".in" + std::to_string(i)));
  return inputs;
}
