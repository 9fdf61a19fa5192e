// Every family of ops, values and gradients, on GPU:0 against CPU:0.
#include "test_tensors.hpp"

#include <functional>

using namespace tensorlite;

namespace {

bool gpu_is_there() {
  if (!config::list_logical_devices("GPU").empty()) return true;
  if (std::getenv("TENSORLITE_REQUIRE_DEVICE")) FAIL("GPU:0 is required and not there");
  static const int said = std::fprintf(stderr, "skipped: GPU:0 is not there\n");
  (void)said;
  return false;
}

using Inputs = std::vector<Tensor>;
using Op = std::function<Tensor(const Inputs&)>;

/// The result, then the gradients of the floating inputs, all on the CPU.
std::vector<Tensor> run_on(Device device, const Inputs& inputs, const Op& op) {
  const DeviceScope scope(device);
  Inputs placed;
  for (const Tensor& t : inputs) {
    placed.push_back(t.to(device).detach());
    if (is_floating(t.dtype())) placed.back().requires_grad_();
  }
  const Tensor result = op(placed);
  CHECK(result.device() == device);
  std::vector<Tensor> all{result.detach().cpu()};
  if (!is_floating(result.dtype()) || !result.requires_grad()) return all;
  const Tensor weights = cos(arange(0, result.numel()).to(result.dtype())).reshape(result.sizes()).to(device);
  result.backward(weights);
  for (const Tensor& t : placed)
    if (t.grad().defined()) all.push_back(t.grad().cpu());
  return all;
}

void check_agreement(const char* name, const Inputs& inputs, const Op& op, double rtol = 1e-4, double atol = 1e-5) {
  INFO(name);
  std::vector<Tensor> cpu, gpu;
  try {
    cpu = run_on(cpu_device(), inputs, op);
    gpu = run_on(gpu_device(), inputs, op);
  } catch (const Error& error) {
    FAIL_CHECK(error.what());
    return;
  }
  REQUIRE(gpu.size() == cpu.size());
  const DeviceScope scope(cpu_device());
  for (std::size_t i = 0; i < cpu.size(); ++i) {
    INFO((i ? "gradient " + std::to_string(i) : std::string("result")));
    CHECK(gpu[i].dtype() == cpu[i].dtype());
    CHECK_VALUES(gpu[i], cpu[i], rtol, atol);
  }
}

Tensor normal(const Dims& sizes, DType dtype = kFloat32) {
  const DeviceScope scope(cpu_device());
  return randn(sizes).to(dtype);
}
Tensor positive(const Dims& sizes) {
  const DeviceScope scope(cpu_device());
  return rand(sizes) * 0.8 + 0.1;
}
Tensor integers(const Dims& sizes, std::int64_t low, std::int64_t high) {
  const DeviceScope scope(cpu_device());
  return randint(low, high, sizes);
}

const DType kAll[] = {kFloat32, kFloat64, kFloat16, kBFloat16, kInt32, kInt64, kUInt8, kBool};
const DType kFloats[] = {kFloat32, kFloat64, kFloat16, kBFloat16};
double tolerance(DType dtype) { return dtype == kBFloat16 ? 2e-2 : dtype == kFloat16 ? 3e-3 : 1e-4; }

}  // namespace

TEST_CASE("gpu: conversions and layouts of copies") {
  if (!gpu_is_there()) return;
  manual_seed(1);
  for (DType from : kAll)
    for (DType to : kAll) {
      const Tensor x = (normal({7, 65}) * 3).to(from);
      check_agreement(
          name_of(to), {x}, [=](const Inputs& in) { return in[0].to(to); }, tolerance(to));
    }
  for (DType dtype : {kFloat32, kFloat64, kFloat16, kUInt8}) {
    const Tensor x = (normal({3, 70, 130}) * 3).to(dtype);
    check_agreement("transpose", {x}, [](const Inputs& in) { return transpose(in[0], 1, 2).contiguous(); });
    check_agreement("permute", {x}, [](const Inputs& in) { return permute(in[0], {2, 0, 1}).contiguous(); });
    check_agreement("slice", {x}, [](const Inputs& in) { return slice(in[0], 2, 1, 128, 3).contiguous(); });
    check_agreement("expand", {x}, [](const Inputs& in) { return expand(slice(in[0], 1, 5, 6), {3, 70, 130}).contiguous(); });
    check_agreement("flip", {x}, [](const Inputs& in) { return flip(in[0], {0, 2}); });
  }
}

TEST_CASE("gpu: unary ops") {
  if (!gpu_is_there()) return;
  manual_seed(2);
#define TL_ROW(function)                                        \
  {                                                             \
#function, [](const Inputs& in) { return function(in[0]); } \
  }
  const std::pair<const char*, Op> ops[] = {
      TL_ROW(neg),      TL_ROW(abs),        TL_ROW(square),     TL_ROW(sqrt),
      TL_ROW(rsqrt),    TL_ROW(reciprocal), TL_ROW(exp),        TL_ROW(expm1),
      TL_ROW(log),      TL_ROW(log1p),      TL_ROW(sin),        TL_ROW(cos),
      TL_ROW(tan),      TL_ROW(tanh),       TL_ROW(sigmoid),    TL_ROW(relu),
      TL_ROW(gelu),     TL_ROW(gelu_tanh),  TL_ROW(silu),       TL_ROW(erf),
      TL_ROW(floor),    TL_ROW(sign),       TL_ROW(isnan),      TL_ROW(logical_not),
      TL_ROW(softplus), TL_ROW(elu),        TL_ROW(leaky_relu), {"clamp", [](const Inputs& in) { return clamp(in[0], 0.3, 0.6); }}};
#undef TL_ROW
  for (DType dtype : kFloats)
    for (const auto& [name, op] : ops) {
      check_agreement(name, {positive({33, 64}).to(dtype)}, op, tolerance(dtype) * 3, tolerance(dtype));
      check_agreement(name, {slice(positive({33, 64}).to(dtype), 1, 1, 62)}, op, tolerance(dtype) * 3, tolerance(dtype));
    }
}

TEST_CASE("gpu: binary ops, broadcasting and scalars") {
  if (!gpu_is_there()) return;
  manual_seed(3);
  const std::pair<const char*, Op> ops[] = {{"add", [](const Inputs& in) { return in[0] + in[1]; }},
                                            {"sub", [](const Inputs& in) { return in[0] - in[1]; }},
                                            {"mul", [](const Inputs& in) { return in[0] * in[1]; }},
                                            {"maximum", [](const Inputs& in) { return maximum(in[0], in[1]); }},
                                            {"less", [](const Inputs& in) { return in[0] < in[1]; }},
                                            {"equal", [](const Inputs& in) { return in[0] == in[1]; }},
                                            {"where", [](const Inputs& in) { return where(in[0] > in[1], in[0], in[1]); }}};
  const std::pair<Dims, Dims> shapes[] = {{{1000}, {1000}},    {{64, 128}, {128}}, {{64, 128}, {64, 1}},
                                          {{5, 1, 7}, {6, 1}}, {{0, 3}, {1, 3}},   {{}, {9}}};
  for (DType dtype : kAll)
    for (const auto& [name, op] : ops)
      for (const auto& [a, b] : shapes)
        if (dtype != kBool || name != std::string("sub"))
          check_agreement(name, {(normal(a) * 4).to(dtype), (normal(b) * 4).to(dtype)}, op, tolerance(dtype));
  for (DType dtype : kFloats) {
    check_agreement(
        "div", {normal({40, 30}).to(dtype), positive({30}).to(dtype)}, [](const Inputs& in) { return in[0] / in[1]; }, tolerance(dtype));
    check_agreement(
        "scalars", {positive({40, 30}).to(dtype)}, [](const Inputs& in) { return 2.5 / (3 - pow(in[0], 3) * 0.25) + 1; },
        tolerance(dtype) * 2);
  }
  check_agreement("floor_divide", {integers({100}, -50, 50), integers({100}, -7, 7)},
                  [](const Inputs& in) { return floor_divide(in[0], in[1]); });
  check_agreement("remainder", {integers({100}, -50, 50), integers({100}, -7, 7)},
                  [](const Inputs& in) { return remainder(in[0], in[1]); });
}

TEST_CASE("gpu: reductions") {
  if (!gpu_is_there()) return;
  manual_seed(4);
  const std::pair<const char*, std::function<Tensor(const Tensor&, const Dims&)>> ops[] = {
      {"sum", [](const Tensor& x, const Dims& axes) { return sum(x, axes); }},
      {"mean", [](const Tensor& x, const Dims& axes) { return mean(x, axes); }},
      {"max", [](const Tensor& x, const Dims& axes) { return max(x, axes, {}); }},
      {"min", [](const Tensor& x, const Dims& axes) { return min(x, axes, {}); }},
      {"var", [](const Tensor& x, const Dims& axes) { return var(x, axes); }},
      {"norm", [](const Tensor& x, const Dims& axes) { return norm(x, axes); }},
      {"logsumexp", [](const Tensor& x, const Dims& axes) { return logsumexp(x, axes); }}};
  for (DType dtype : kFloats)
    for (const Dims& axes : {Dims{}, Dims{0}, Dims{1}, Dims{2}, Dims{0, 2}, Dims{1, 2}})
      for (const auto& [name, op] : ops)
        check_agreement(
            name, {normal({6, 40, 36}, dtype)}, [&, f = op](const Inputs& in) { return f(in[0], axes); }, 10 * tolerance(dtype),
            tolerance(dtype));
  for (const Dims& axes : {Dims{0}, Dims{1}}) {
    check_agreement(
        "transposed", {normal({300, 200})}, [&](const Inputs& in) { return sum(transpose(in[0], 0, 1), axes); }, 1e-3, 1e-3);
    check_agreement("any", {normal({300, 20}) > 2.0}, [&](const Inputs& in) { return any(in[0], axes); });
    check_agreement("all", {normal({300, 20}) > -2.0}, [&](const Inputs& in) { return all(in[0], axes); });
    check_agreement("integers", {integers({300, 20}, -9, 9)}, [&](const Inputs& in) { return sum(in[0], axes); });
    check_agreement("argmax", {normal({300, 20})}, [&](const Inputs& in) { return argmax(in[0], static_cast<int>(axes[0])); });
    check_agreement(
        "cumsum", {normal({300, 20})}, [&](const Inputs& in) { return cumsum(in[0], static_cast<int>(axes[0])); }, 1e-3, 1e-4);
  }
  check_agreement("long", {positive({1 << 20})}, [](const Inputs& in) { return sum(in[0]); });
  check_agreement("long columns", {positive({1 << 17, 3})}, [](const Inputs& in) { return mean(in[0], {0}); });
  check_agreement("long running sum", {positive({5000})}, [](const Inputs& in) { return cumsum(in[0], 0); });
}

TEST_CASE("gpu: matrix products") {
  if (!gpu_is_there()) return;
  manual_seed(5);
  for (DType dtype : kFloats) {
    const double t = 10 * tolerance(dtype);
    check_agreement(
        "matmul", {normal({33, 65}, dtype), normal({65, 17}, dtype)}, [](const Inputs& in) { return matmul(in[0], in[1]); }, t, t);
    check_agreement(
        "transposed", {normal({65, 33}, dtype), normal({17, 65}, dtype)},
        [](const Inputs& in) { return matmul(transpose(in[0], 0, 1), transpose(in[1], 0, 1)); }, t, t);
    check_agreement(
        "strided", {normal({33, 66}, dtype), normal({33, 17}, dtype)},
        [](const Inputs& in) { return matmul(slice(in[0], 1, 0, 66, 2), in[1]); }, t, t);
    check_agreement(
        "batched", {normal({4, 1, 10, 20}, dtype), normal({3, 20, 30}, dtype)}, [](const Inputs& in) { return matmul(in[0], in[1]); }, t,
        t);
    check_agreement(
        "vector", {normal({50, 20}, dtype), normal({20}, dtype)}, [](const Inputs& in) { return matmul(in[0], in[1]); }, t, t);
    for (Activation activation : {Activation::none, Activation::relu, Activation::gelu})
      check_agreement(
          "linear", {normal({64, 100}, dtype), normal({30, 100}, dtype), normal({30}, dtype)},
          [=](const Inputs& in) { return linear(in[0], in[1], in[2], activation); }, t, t);
  }
  check_agreement("integers", {integers({20, 30}, -9, 9), integers({30, 10}, -9, 9)},
                  [](const Inputs& in) { return matmul(in[0], in[1]); });
}

TEST_CASE("gpu: convolutions") {
  if (!gpu_is_there()) return;
  manual_seed(6);
  struct Shape {
    Dims image, weight;
    Conv2dOptions options;
  };
  const Shape shapes[] = {{{2, 12, 12, 1}, {32, 3, 3, 1}, {}},
                          {{2, 9, 11, 32}, {64, 3, 3, 32}, {.padding = Padding::same()}},
                          {{2, 9, 11, 3}, {8, 5, 5, 3}, {.stride = 2, .padding = Padding::same()}},
                          {{1, 14, 14, 8}, {16, 1, 1, 8}, {}},
                          {{2, 10, 10, 8}, {8, 3, 3, 1}, {.padding = Padding::same(), .groups = 8}},
                          {{2, 10, 10, 8}, {12, 3, 3, 4}, {.stride = 2, .groups = 2}},
                          {{2, 13, 13, 4}, {6, 3, 2, 4}, {.padding = Padding::same(), .dilation = 2}}};
  for (DType dtype : kFloats)
    for (const Shape& s : shapes) {
      const double t = 10 * tolerance(dtype);
      const auto op = [&](Activation activation) {
        return [&s, activation](const Inputs& in) {
          Conv2dOptions options = s.options;
          options.activation = activation;
          return in.size() > 2 ? conv2d(in[0], in[1], in[2], options) : conv2d(in[0], in[1], options);
        };
      };
      const Tensor image = normal(s.image, dtype), weight = normal(s.weight, dtype), bias = normal({s.weight[0]}, dtype);
      check_agreement("conv2d", {image, weight}, op(Activation::none), t, t * 5);
      check_agreement("with bias", {image, weight, bias}, op(Activation::none), t, t * 5);
      check_agreement("with relu", {image, weight, bias}, op(Activation::relu), t, t * 5);
    }
  check_agreement(
      "transposed", {normal({2, 7, 7, 6}), normal({6, 3, 3, 4})},
      [](const Inputs& in) { return conv_transpose2d(in[0], in[1], {}, {.stride = 2, .output_padding = 1}); }, 1e-3, 1e-3);
}

TEST_CASE("gpu: pooling, normalisation, softmax") {
  if (!gpu_is_there()) return;
  manual_seed(7);
  for (DType dtype : kFloats) {
    const double t = 10 * tolerance(dtype);
    const Tensor image = normal({2, 13, 11, 6}, dtype);
    check_agreement(
        "max", {image}, [](const Inputs& in) { return max_pool2d(in[0], 2); }, t, t);
    check_agreement(
        "max, overlapping", {image}, [](const Inputs& in) { return max_pool2d(in[0], 3, {.stride = 2, .padding = Padding::same()}); }, t,
        t);
    const Tensor packed = normal({2, 9, 10, 8}, dtype);
    check_agreement(
        "max, packs", {packed}, [](const Inputs& in) { return max_pool2d(in[0], 2); }, t, t);
    check_agreement(
        "max, overlapping packs", {packed},
        [](const Inputs& in) { return max_pool2d(in[0], 3, {.stride = 2, .padding = 1, .rounding = Rounding::ceil}); }, t, t);
    check_agreement(
        "max, dilated packs", {packed}, [](const Inputs& in) { return max_pool2d(in[0], 2, {.stride = 1, .dilation = 3}); }, t, t);
    check_agreement(
        "average", {image}, [](const Inputs& in) { return avg_pool2d(in[0], 3, {.stride = 2, .rounding = Rounding::ceil}); }, t, t);
    check_agreement(
        "adaptive", {image},
        [](const Inputs& in) {
          return adaptive_avg_pool2d(in[0], {5, 4});
        },
        t, t);
    for (std::int64_t n : {10, 100, 128, 1000, 1024, 3000}) {
      check_agreement(
          "softmax", {normal({9, n}, dtype)}, [](const Inputs& in) { return softmax(in[0], 1); }, t, t);
      check_agreement(
          "log_softmax", {normal({9, n}, dtype)}, [](const Inputs& in) { return log_softmax(in[0], 1); }, t, t);
    }
    check_agreement(
        "softmax, inner", {normal({4, 20, 7}, dtype)}, [](const Inputs& in) { return softmax(in[0], 1); }, t, t);
    check_agreement(
        "layer_norm", {normal({30, 48}, dtype), normal({48}, dtype), normal({48}, dtype)},
        [](const Inputs& in) { return layer_norm(in[0], {48}, in[1], in[2]); }, t, t * 5);
    check_agreement(
        "batch_norm", {normal({4, 5, 6, 7}, dtype), normal({7}, dtype), normal({7}, dtype)},
        [](const Inputs& in) {
          Tensor mean = zeros({7}), var = ones({7});
          return batch_norm_train(in[0], in[1], in[2], mean, var);
        },
        t, t * 5);
  }
}

TEST_CASE("gpu: losses and indexing") {
  if (!gpu_is_there()) return;
  manual_seed(8);
  for (DType dtype : kFloats) {
    const double t = 10 * tolerance(dtype);
    check_agreement(
        "cross_entropy", {normal({64, 10}, dtype), integers({64}, 0, 10)}, [](const Inputs& in) { return cross_entropy(in[0], in[1]); }, t,
        t);
    check_agreement(
        "smoothed", {normal({64, 3000}, dtype), integers({64}, 0, 3000)},
        [](const Inputs& in) { return cross_entropy(in[0], in[1], {.ignore_index = 5, .label_smoothing = 0.1}); }, t, t);
    check_agreement(
        "embedding", {normal({50, 24}, dtype), integers({200}, -50, 50)}, [](const Inputs& in) { return embedding(in[0], in[1]); }, t, t);
    check_agreement(
        "index_select", {normal({6, 50}, dtype), integers({70}, 0, 50)}, [](const Inputs& in) { return index_select(in[0], 1, in[1]); }, t,
        t);
    check_agreement(
        "gather", {normal({20, 30}, dtype), integers({20, 7}, 0, 30)}, [](const Inputs& in) { return gather(in[0], 1, in[1]); }, t, t);
  }
  const DeviceScope scope(gpu_device());
  CHECK_THROWS_AS((cross_entropy(zeros({2, 5}), Tensor({1, 5}).to(kInt64)), synchronize()), IndexError);
  CHECK_THROWS_AS((embedding(zeros({2, 5}), Tensor({2}).to(kInt64)), synchronize()), IndexError);
  CHECK_VALUES(zeros({2}) + 1, {1, 1});
}

namespace {
/// x, weights of `sets` directions and layers, h0, c0.
Inputs recurrent_inputs(std::int64_t gates, std::int64_t steps, std::int64_t batch, std::int64_t width, std::int64_t hidden, int layers,
                        int directions, DType dtype) {
  const auto small = [&](const Dims& sizes) {
    const DeviceScope scope(cpu_device());
    return (normal(sizes) * (1 / std::sqrt(static_cast<double>(hidden)))).to(dtype);
  };
  const std::int64_t sets = layers * directions;
  Inputs in{normal({steps, batch, width}, dtype), normal({sets, batch, hidden}, dtype), normal({sets, batch, hidden}, dtype)};
  for (std::int64_t i = 0; i < sets; ++i)
    for (const Dims& sizes : {Dims{gates * hidden, i < directions ? width : directions * hidden}, Dims{gates * hidden, hidden},
                              Dims{gates * hidden}, Dims{gates * hidden}})
      in.push_back(small(sizes));
  return in;
}
}  // namespace

TEST_CASE("gpu: recurrent layers") {
  if (!gpu_is_there()) return;
  manual_seed(10);
  struct Case {
    std::int64_t steps, batch, width, hidden;
    int layers, directions;
  };
  // The captcha network's; no whole tile of samples or warp of units; the largest that goes by tiles; larger ones, step by step.
  const Case cases[] = {{12, 128, 512, 128, 2, 2}, {7, 9, 5, 19, 1, 2},   {3, 6, 8, 256, 1, 2},
                        {4, 5, 8, 300, 2, 2},      {2, 3, 8, 2500, 1, 1}, {1, 1, 1, 1, 1, 1}};
  for (const Case& c : cases)
    for (const RnnKind kind : {RnnKind::tanh, RnnKind::relu, RnnKind::lstm, RnnKind::gru, RnnKind::gru_reset_before})
      for (const DType dtype : {kFloat32, kFloat64}) {
        if (c.hidden > 1000 && (kind != RnnKind::lstm || dtype == kFloat64)) continue;
        const std::int64_t gates = kind == RnnKind::lstm ? 4 : kind == RnnKind::tanh || kind == RnnKind::relu ? 1 : 3;
        const auto op = [&, kind](const Inputs& in) {
          std::vector<RnnWeights> weights;
          for (std::size_t i = 3; i < in.size(); i += 4) weights.push_back({in[i], in[i + 1], in[i + 2], in[i + 3]});
          RnnInputs inputs{.state = {in[1], in[2]}};
          if (c.steps > 1) inputs.lengths = remainder(arange(0, c.batch), Tensor{c.steps + 1});
          const RnnOptions options{.bidirectional = c.directions == 2,
                                   .reset = kind == RnnKind::gru ? GruReset::after : GruReset::before,
                                   .activation = kind == RnnKind::relu ? RnnActivation::relu : RnnActivation::tanh};
          if (kind != RnnKind::lstm) inputs.state.c = {};
          const RnnResult r = gates == 4   ? lstm(in[0], weights, inputs, options)
                              : gates == 3 ? gru(in[0], weights, inputs, options)
                                           : rnn(in[0], weights, inputs, options);
          Tensor all = concatenate({flatten(r.output), flatten(r.state.h)}, 0);
          return r.state.c.defined() ? concatenate({all, flatten(r.state.c)}, 0) : all;
        };
        INFO("kind " << static_cast<int>(kind) << ", hidden " << c.hidden);
        const double t = dtype == kFloat64 ? 1e-9 : 1e-3;
        check_agreement("recurrent", recurrent_inputs(gates, c.steps, c.batch, c.width, c.hidden, c.layers, c.directions, dtype), op, t, t);
      }
  const DeviceScope scope(gpu_device());
  const RnnWeights w{zeros({4, 2}), zeros({4, 1}), zeros({4}), zeros({4})};
  CHECK_THROWS_AS((lstm(zeros({3, 2, 2}), {w}, {.lengths = Tensor({1, 4}).to(kInt64)}), synchronize()), ValueError);
  CHECK_VALUES(lstm(zeros({3, 2, 2}), {w}, {.lengths = Tensor({1, 3}).to(kInt64)}).output, zeros({3, 2, 1}));
}

TEST_CASE("gpu: CTC") {
  if (!gpu_is_there()) return;
  manual_seed(11);
  for (const DType dtype : {kFloat32, kFloat64}) {
    const double t = dtype == kFloat64 ? 1e-9 : 1e-4;
    const Tensor targets = integers({128, 4}, 1, 37), counts = integers({128}, 0, 5), frames = integers({128}, 0, 13);
    const Inputs in{normal({12, 128, 37}, dtype), targets, frames, counts};
    check_agreement(
        "of logits", in,
        [](const Inputs& x) { return ctc_loss_with_logits(x[0], x[1], x[2], x[3], {.reduction = Reduction::none, .zero_infinity = true}); },
        t, t);
    check_agreement(
        "of log-probabilities", in, [](const Inputs& x) { return ctc_loss(log_softmax(x[0], 2), x[1], {}, x[3]); }, t, t);
    check_agreement(
        "long", {normal({400, 3, 1000}, dtype), integers({3, 150}, 0, 999)},
        [](const Inputs& x) { return ctc_loss_with_logits(x[0], x[1], {}, {}, {.blank = 999}); }, t, t);
  }
  const DeviceScope scope(gpu_device());
  const Tensor lp = log_softmax(zeros({4, 2, 3}), 2);
  CHECK_THROWS_AS((ctc_loss(lp, Tensor({{1, 2}, {2, 3}})), synchronize()), IndexError);
  CHECK_THROWS_AS((ctc_loss(lp, Tensor({{1, 2}, {2, 1}}), Tensor({4, 5})), synchronize()), ValueError);
  CHECK_VALUES(zeros({2}) + 1, {1, 1});
}

TEST_CASE("gpu: random numbers are the CPU's, bit for bit") {
  if (!gpu_is_there()) return;
  const auto draw = [](Device device, auto&& f) {
    const DeviceScope scope(device);
    manual_seed(123);
    return f().cpu();
  };
  const auto same = [&](const char* name, auto&& f) {
    INFO(name);
    const Tensor cpu = draw(cpu_device(), f), gpu = draw(gpu_device(), f);
    const DeviceScope scope(cpu_device());
    CHECK_VALUES(gpu, cpu, 0, 0);
  };
  for (DType dtype : kFloats) {
    same("rand", [=] { return rand({10007}, {.dtype = dtype}); });
    same("randn", [=] { return randn({10007}, {.dtype = dtype}); });
    same("dropout", [=] { return dropout(ones({10007}, {.dtype = dtype}), 0.3); });
  }
  same("randint", [] { return randint(-5, 1000, {10007}); });
}

TEST_CASE("gpu: A54: more rows than a grid has, and no elements at all") {
  if (!gpu_is_there()) return;
  manual_seed(9);
  for (const Dims& sizes : {Dims{70000, 1, 2, 2}, Dims{1, 2, 2, 70000}, Dims{0, 2, 2, 3}}) {
    const std::int64_t channels = sizes[3];
    check_agreement("bias", {normal(sizes), normal({channels})}, [](const Inputs& in) { return in[0] + in[1]; });
    check_agreement("softmax", {normal(sizes)}, [](const Inputs& in) { return softmax(in[0], 3); });
    check_agreement("max_pool", {normal(sizes)}, [](const Inputs& in) { return max_pool2d(in[0], {1, 2}); });
    if (sizes.product() == 0) continue;
    check_agreement(
        "batch_norm", {normal(sizes)},
        [](const Inputs& in) {
          Tensor mean, var;
          return batch_norm_train(in[0], {}, {}, mean, var);
        },
        1e-3, 1e-3);
  }
  check_agreement("rows", {normal({70000, 3}), integers({70000}, 0, 70000)},
                  [](const Inputs& in) { return index_select(in[0], 0, in[1]); });
}

TEST_CASE("gpu: NaN stays NaN in fused epilogues") {
  if (!gpu_is_there()) return;
  const DeviceScope scope(gpu_device());
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (DType dtype : kFloats) {
    const Tensor x = full({4, 8}, nan).to(dtype), w = ones({16, 8}).to(dtype), b = ones({16}).to(dtype);
    INFO(name_of(dtype));
    CHECK(all(isnan(linear(x, w, b, Activation::relu))).item<bool>());
    CHECK(all(isnan(conv2d(x.reshape({4, 1, 1, 8}), w.reshape({16, 1, 1, 8}), b, {.activation = Activation::relu}))).item<bool>());
  }
}
