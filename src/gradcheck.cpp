// Out-of-line L2: gradcheck, backward against central differences in float64.
#include <tensorlite/autograd.hpp>
#include <tensorlite/ops/elementwise.hpp>
#include <tensorlite/ops/reduce.hpp>

#include <algorithm>
#include <cmath>

namespace tensorlite {
namespace {

/// The function's value times fixed weights, summed: one number whose gradient touches every output element.
double weighted_sum(const Tensor& output, const std::vector<double>& weights) {
  const std::vector<double> values = output.to_vector<double>();
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) sum += values[i] * weights[i];
  return sum;
}

std::vector<double> make_weights(std::int64_t count) {
  std::vector<double> weights(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = 0.5 + std::fmod(0.6180339887 * static_cast<double>(i + 1), 1.0);
  return weights;
}

/// The same inputs with one element of one of them moved by `delta`, at the same layout-independent position.
std::vector<Tensor> moved(const std::vector<Tensor>& inputs, std::size_t which, std::int64_t element, double delta) {
  std::vector<Tensor> out(inputs.begin(), inputs.end());
  std::vector<double> values = inputs[which].to_vector<double>();
  values[static_cast<std::size_t>(element)] += delta;
  out[which] = from_vector(values, inputs[which].sizes(), {.device = inputs[which].device()});
  return out;
}

double numeric_gradient(const GradcheckFunction& function, const std::vector<Tensor>& inputs, std::size_t which, std::int64_t element,
                        const std::vector<double>& weights, double eps) {
  // Grad mode stays on: the function may itself call grad().
  const double up = weighted_sum(function(moved(inputs, which, element, eps)).detach(), weights);
  const double down = weighted_sum(function(moved(inputs, which, element, -eps)).detach(), weights);
  return (up - down) / (2 * eps);
}

}  // namespace

GradcheckResult gradcheck(const GradcheckFunction& function, const std::vector<Tensor>& inputs, GradcheckOptions options) {
  std::vector<Tensor> wanted;
  for (const Tensor& input : inputs) {
    if (!input.requires_grad()) continue;
    TL_CHECK(input.dtype() == kFloat64, DTypeError, "gradcheck", "inputs must be float64 (differences drown in float32), one is ",
             input.dtype());
    wanted.push_back(input);
  }
  TL_CHECK(!wanted.empty(), ValueError, "gradcheck", "no input requires a gradient");
  const Tensor output = function(inputs);
  TL_CHECK(output.dtype() == kFloat64, DTypeError, "gradcheck", "the function must return float64, it returned ", output.dtype());
  const std::vector<double> weights = make_weights(output.numel());
  const std::vector<Tensor> analytic = grad({output}, wanted, {from_vector(weights, output.sizes(), {.device = output.device()})});
  std::size_t next = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].requires_grad()) continue;
    const Tensor& gradient = analytic[next++];
    const std::vector<double> values =
        gradient.defined() ? gradient.to_vector<double>() : std::vector<double>(static_cast<std::size_t>(inputs[i].numel()), 0.0);
    for (std::int64_t e = 0; e < inputs[i].numel(); ++e) {
      const double expected = numeric_gradient(function, inputs, i, e, weights, options.eps);
      const double got = values[static_cast<std::size_t>(e)];
      if (std::abs(got - expected) <= options.atol + options.rtol * std::abs(expected)) continue;
      return {false, detail::concat("input ", i, ", element ", e, " of shape ", inputs[i].sizes(), ": backward gives ", got,
                                    ", differences give ", expected)};
    }
  }
  return {};
}

GradcheckResult gradgradcheck(const GradcheckFunction& function, const std::vector<Tensor>& inputs, GradcheckOptions options) {
  const GradcheckFunction first_gradients = [&function](const std::vector<Tensor>& points) {
    std::vector<Tensor> leaves, wanted;
    for (const Tensor& p : points) {
      // Moved inputs arrive as plain tensors: they stand for the recorded ones.
      Tensor leaf = p.requires_grad() || !is_floating(p.dtype()) ? p : p.detach().requires_grad_();
      leaves.push_back(leaf);
      if (leaf.requires_grad()) wanted.push_back(leaf);
    }
    const Tensor output = function(leaves);
    const std::vector<double> weights = make_weights(output.numel());
    const std::vector<Tensor> gradients =
        grad({output}, wanted, {from_vector(weights, output.sizes(), {.device = output.device()})}, {.create_graph = true});
    Tensor total = zeros({}, {.dtype = kFloat64});
    for (std::size_t i = 0; i < gradients.size(); ++i)
      if (gradients[i].defined()) total = total + (gradients[i] * gradients[i]).sum() * (0.5 + static_cast<double>(i));
    for (const Tensor& leaf : wanted) total = total + leaf.sum() * 0;  // a constant gradient is recorded, too: its own is zero
    return total;
  };
  return gradcheck(first_gradients, inputs, options);
}

}  // namespace tensorlite
