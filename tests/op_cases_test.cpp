// Every row of the table: against PyTorch's results and gradients, in every layout, and its gradient's gradient against differences.
#include "op_cases.hpp"

#include <limits>
#include <set>

namespace {

/// One case in one dtype: the file's float64 inputs are converted, results compared within the tolerances.
void check_case(const std::string& name, const Op& op, Device device, DType dtype, double rtol, double atol) {
  INFO(name << " in " << name_of(dtype));
  const auto convert = [&](const Tensor& t) { return (is_floating(t.dtype()) ? t.to(dtype) : t).to(device); };
  Inputs inputs;
  for (const Tensor& stored : stored_inputs(name)) {
    Tensor x = convert(stored).clone();
    inputs.push_back(is_floating(x.dtype()) ? x.requires_grad_() : x);
  }
  const Tensor out = op(inputs);
  CHECK_VALUES(out, reference_arrays().at(name + ".out"), rtol, atol);
  if (!reference_arrays().count(name + ".g")) return;
  out.backward(convert(reference_arrays().at(name + ".g")));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto expected = reference_arrays().find(name + ".grad" + std::to_string(i));
    if (expected == reference_arrays().end()) continue;
    INFO("gradient of input " << i);
    REQUIRE(inputs[i].grad().defined());
    CHECK_VALUES(inputs[i].grad(), expected->second, rtol, atol);
  }
}

/// The same elements in other memory: reversed axes in storage; every second column of a buffer of NaN with an offset.
Tensor with_reversed_axes(const Tensor& x) {
  Dims axes;
  for (int i = x.dim() - 1; i >= 0; --i) axes.push_back(i);
  return x.permute(axes).contiguous().permute(axes);
}
Tensor with_gaps(const Tensor& x) {
  if (x.dim() == 0) return x;
  Dims sizes = x.sizes();
  sizes.back() = sizes.back() * 2 + 3;
  Tensor buffer = is_floating(x.dtype()) ? full(sizes, std::numeric_limits<double>::quiet_NaN(), {.dtype = x.dtype()})
                                         : full(sizes, 1 << 20, {.dtype = x.dtype()});
  Tensor view = buffer.slice(-1, 3, {}, 2);
  return view.copy_(x);
}

}  // namespace

TEST_CASE("results and gradients agree with PyTorch in float64 and float32", "[reference]") {
  const Device device = GENERATE(from_range(test_devices()));
  const DeviceScope scope(device);
  for (const auto& [name, op] : op_cases()) {
    check_case(name, op, device, kFloat64, 1e-9, 1e-10);
    check_case(name, op, device, kFloat32, 2e-5, 2e-5);
  }
}

TEST_CASE("every stored case is tested and every tested case is stored", "[reference]") {
  std::set<std::string> stored, tested;
  for (const auto& [key, value] : reference_arrays()) stored.insert(key.substr(0, key.find('.')));
  for (const auto& [name, op] : op_cases()) tested.insert(name);
  CHECK(stored == tested);
}

TEST_CASE("results do not depend on the layout of the inputs, nor on what lies beside them", "[layout]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  for (const auto& [name, op] : op_cases()) {
    for (const DType dtype : {kFloat32, kFloat64}) {
      INFO(name << " in " << name_of(dtype));
      Inputs dense, reversed, gaps;
      for (const Tensor& stored : stored_inputs(name)) {
        const Tensor x = is_floating(stored.dtype()) ? stored.to(dtype) : stored + 0;
        dense.push_back(x);
        reversed.push_back(with_reversed_axes(x));
        gaps.push_back(with_gaps(x));
      }
      const Tensor expected = op(dense);
      CHECK_VALUES(op(reversed), expected, 1e-5, 1e-6);
      CHECK_VALUES(op(gaps), expected, 1e-5, 1e-6);
    }
  }
}

TEST_CASE("half types stay near float32", "[half]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const std::set<std::string> ill_conditioned = {"acosh", "remainder", "tan", "argmax", "floor", "ceil", "trunc", "round", "prod"};
  for (const auto& [name, op] : op_cases()) {
    if (ill_conditioned.count(name)) continue;  // an input rounded to 8 bits has another result
    for (const DType dtype : {kFloat16, kBFloat16}) {
      INFO(name << " in " << name_of(dtype));
      Inputs half, single;
      for (const Tensor& stored : stored_inputs(name)) {
        half.push_back(is_floating(stored.dtype()) ? stored.to(dtype) : stored);
        single.push_back(is_floating(stored.dtype()) ? half.back().to(kFloat32) : stored);
      }
      const double tolerance = dtype == kFloat16 ? 5e-3 : 4e-2;
      CHECK_VALUES(op(half), op(single), tolerance, tolerance);
    }
  }
}

TEST_CASE("the gradient of the gradient agrees with differences", "[autograd]") {
  // Kinks, and ops whose fused gradient says that it cannot be recorded.
  const std::set<std::string> without = {"batch_norm",          "layer_norm",       "argmax", "lstm",     "lstm_stacked", "gru",
                                         "gru_stacked",         "gru_reset_before", "rnn",    "rnn_relu", "ctc_loss",     "ctc_loss_each",
                                         "ctc_loss_with_logits"};
  for (const auto& [name, op] : op_cases()) {
    if (without.count(name)) continue;
    Inputs inputs;
    bool any = false;
    for (const Tensor& stored : stored_inputs(name)) {
      Tensor x = stored.cpu().clone();
      inputs.push_back(is_floating(x.dtype()) ? x.requires_grad_() : x);
      any = any || is_floating(x.dtype());
    }
    if (!any || !op(inputs).requires_grad()) continue;
    const DeviceScope cpu("/CPU:0");
    const GradcheckResult result = gradgradcheck(op, inputs, {.eps = 1e-5, .atol = 1e-4, .rtol = 1e-3});
    INFO(name << ": " << result.message);
    CHECK(result.ok);
  }
}
