// Recurrent layers: against the same recurrence written with public operations, against differences, and in every layout; the modules.
#include "test_tensors.hpp"

#include <limits>

using namespace tensorlite;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr RnnKind kKinds[] = {RnnKind::tanh, RnnKind::relu, RnnKind::lstm, RnnKind::gru, RnnKind::gru_reset_before};

RnnResult run(RnnKind kind, const Tensor& x, const std::vector<RnnWeights>& weights, const RnnInputs& inputs = {},
              RnnOptions options = {}) {
  options.reset = kind == RnnKind::gru_reset_before ? GruReset::before : GruReset::after;
  options.activation = kind == RnnKind::relu ? RnnActivation::relu : RnnActivation::tanh;
  if (kind == RnnKind::lstm) return lstm(x, weights, inputs, options);
  return kind == RnnKind::gru || kind == RnnKind::gru_reset_before ? gru(x, weights, inputs, options) : rnn(x, weights, inputs, options);
}

std::int64_t gates_of(RnnKind kind) { return kind == RnnKind::lstm ? 4 : kind == RnnKind::tanh || kind == RnnKind::relu ? 1 : 3; }

struct Sizes {
  std::int64_t steps, batch, inputs, hidden, layers, directions;
};

std::vector<RnnWeights> random_weights(RnnKind kind, const Sizes& s, DType dtype) {
  std::vector<RnnWeights> all;
  const auto make = [&](const Dims& sizes) { return (randn(sizes) * 0.2).to(dtype).detach().requires_grad_(); };
  for (std::int64_t i = 0; i < s.layers * s.directions; ++i) {
    const std::int64_t width = gates_of(kind) * s.hidden, inputs = i < s.directions ? s.inputs : s.directions * s.hidden;
    all.push_back({make({width, inputs}), make({width, s.hidden}), make({width}), make({width})});
  }
  return all;
}

/// One step of one sample, all in public operations. h, c: [1, H].
void step(RnnKind kind, const RnnWeights& w, const Tensor& x, Tensor& h, Tensor& c) {
  const Tensor xs = linear(x, w.w_ih, w.b_ih), rs = linear(h, w.w_hh, w.b_hh);
  const std::int64_t hidden = h.size(1);
  const auto gate = [&](const Tensor& t, std::int64_t g) { return t.narrow(1, g * hidden, hidden); };
  const Tensor both = xs + rs;
  switch (kind) {
    case RnnKind::tanh: h = tanh(both); return;
    case RnnKind::relu: h = relu(both); return;
    case RnnKind::lstm:
      c = sigmoid(gate(both, 1)) * c + sigmoid(gate(both, 0)) * tanh(gate(both, 2));
      h = sigmoid(gate(both, 3)) * tanh(c);
      return;
    default: break;
  }
  const Tensor r = sigmoid(gate(both, 0)), z = sigmoid(gate(both, 1));
  const Tensor recurrent =
      kind == RnnKind::gru ? r * gate(rs, 2) : linear(r * h, w.w_hh.narrow(0, 2 * hidden, hidden), w.b_hh.narrow(0, 2 * hidden, hidden));
  const Tensor n = tanh(gate(xs, 2) + recurrent);
  h = (1 - z) * n + z * h;
}

/// The whole stack, sample by sample and step by step.
RnnResult reference(RnnKind kind, const Sizes& s, const Tensor& x, const std::vector<RnnWeights>& weights, const RnnState& start,
                    const std::vector<std::int64_t>& lengths) {
  std::vector<Tensor> outputs, hs, cs;
  for (std::int64_t n = 0; n < s.batch; ++n) {
    Tensor in = x.narrow(1, n, 1);  // [steps, 1, width]
    std::vector<Tensor> h_of_sample, c_of_sample;
    for (std::int64_t layer = 0; layer < s.layers; ++layer) {
      std::vector<Tensor> halves;
      for (std::int64_t d = 0; d < s.directions; ++d) {
        const std::int64_t at = layer * s.directions + d, length = lengths[static_cast<std::size_t>(n)];
        Tensor h = start.h.select(0, at).narrow(0, n, 1), c = start.c.select(0, at).narrow(0, n, 1);
        std::vector<Tensor> steps(static_cast<std::size_t>(s.steps), zeros_like(h));
        for (std::int64_t i = 0; i < length; ++i) {
          const std::int64_t t = d == 1 ? length - 1 - i : i;
          step(kind, weights[static_cast<std::size_t>(at)], in.select(0, t), h, c);
          steps[static_cast<std::size_t>(t)] = h;
        }
        halves.push_back(stack(steps, 0));
        h_of_sample.push_back(h);
        c_of_sample.push_back(c);
      }
      in = concatenate(halves, 2);
    }
    outputs.push_back(in);
    hs.push_back(stack(h_of_sample, 0));
    cs.push_back(stack(c_of_sample, 0));
  }
  return {concatenate(outputs, 1), {concatenate(hs, 1), concatenate(cs, 1)}};
}

/// Everything that a call gave, weighted, as one number.
Tensor weighted(const RnnResult& r) {
  const auto part = [](const Tensor& t) { return sum(t * cos(arange(0, t.numel()).to(t.dtype()).reshape(t.sizes()))); };
  const Tensor total = part(r.output) + part(r.state.h);
  return r.state.c.defined() ? total + part(r.state.c) : total;
}

std::vector<Tensor> leaves(const Tensor& x, const std::vector<RnnWeights>& weights, const RnnState& state) {
  std::vector<Tensor> all{x, state.h, state.c};
  for (const RnnWeights& w : weights) all.insert(all.end(), {w.w_ih, w.w_hh, w.b_ih, w.b_hh});
  return all;
}

}  // namespace

TEST_CASE("recurrent layers agree with their recurrence step by step, results and gradients") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  manual_seed(3);
  // 40 samples are more than a tile, 19 and 33 units no whole number of vectors.
  const Sizes sizes[] = {{5, 40, 3, 19, 1, 1}, {4, 3, 6, 33, 2, 2}, {3, 5, 4, 16, 1, 2}};
  for (const RnnKind kind : kKinds)
    for (const Sizes& s : sizes)
      for (const bool with_lengths : {false, true}) {
        INFO("kind " << static_cast<int>(kind) << ", hidden " << s.hidden << (with_lengths ? ", lengths" : ""));
        const Tensor x = leaf(randn({s.steps, s.batch, s.inputs}));
        const std::vector<RnnWeights> weights = random_weights(kind, s, kFloat32);
        const RnnState start{leaf(randn({s.layers * s.directions, s.batch, s.hidden})),
                             leaf(randn({s.layers * s.directions, s.batch, s.hidden}))};
        std::vector<std::int64_t> lengths;
        for (std::int64_t n = 0; n < s.batch; ++n) lengths.push_back(with_lengths ? (n * 3 + 1) % (s.steps + 1) : s.steps);
        const RnnResult expected = reference(kind, s, x, weights, start, lengths);
        RnnInputs inputs{.state = {start.h, kind == RnnKind::lstm ? start.c : Tensor()}};
        if (with_lengths) inputs.lengths = from_vector(lengths);
        const RnnResult got = run(kind, x, weights, inputs, {.bidirectional = s.directions == 2});
        CHECK_VALUES(got.output, expected.output, 1e-5, 1e-5);
        CHECK_VALUES(got.state.h, expected.state.h, 1e-5, 1e-5);
        CHECK(got.state.c.defined() == (kind == RnnKind::lstm));
        RnnResult compared = expected;
        if (kind == RnnKind::lstm) CHECK_VALUES(got.state.c, expected.state.c, 1e-5, 1e-5);
        else compared.state.c = Tensor();
        const std::vector<Tensor> all = leaves(x, weights, start);
        const std::vector<Tensor> wanted = grad({weighted(compared)}, all), gotten = grad({weighted(got)}, all);
        for (std::size_t i = 0; i < all.size(); ++i) {
          INFO("gradient " << i);
          REQUIRE(gotten[i].defined() == wanted[i].defined());
          if (wanted[i].defined()) CHECK_VALUES(gotten[i], wanted[i], 2e-4, 2e-4);
        }
      }
}

TEST_CASE("recurrent gradients agree with differences") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  manual_seed(4);
  for (const RnnKind kind : kKinds) {
    INFO("kind " << static_cast<int>(kind));
    const Sizes s{3, 2, 2, 3, 2, 2};
    const std::vector<RnnWeights> weights = random_weights(kind, s, kFloat64);
    const RnnState start{randn({4, 2, 3}, {.dtype = kFloat64}).requires_grad_(), randn({4, 2, 3}, {.dtype = kFloat64}).requires_grad_()};
    std::vector<Tensor> inputs = leaves(randn({2, 3, 2}, {.dtype = kFloat64}).requires_grad_(), weights, start);
    const GradcheckResult result = gradcheck(
        [&](const std::vector<Tensor>& in) {
          std::vector<RnnWeights> w;
          for (std::size_t i = 3; i < in.size(); i += 4) w.push_back({in[i], in[i + 1], in[i + 2], in[i + 3]});
          const RnnInputs call{.lengths = Tensor{3, 2}, .state = {in[1], kind == RnnKind::lstm ? in[2] : Tensor()}};
          const Tensor total = weighted(run(kind, in[0], w, call, {.bidirectional = true, .batch_first = true}));
          return kind == RnnKind::lstm ? total : total + sum(in[2]);
        },
        inputs);
    INFO(result.message);
    CHECK(result.ok);
  }
}

TEST_CASE("recurrent layers: batch first is time first transposed") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  manual_seed(5);
  for (const RnnKind kind : kKinds) {
    const Sizes s{6, 4, 5, 8, 2, 2};
    const std::vector<RnnWeights> weights = random_weights(kind, s, kFloat32);
    const Tensor x = leaf(randn({6, 4, 5})), turned = leaf(x.transpose(0, 1));
    const RnnInputs inputs{.lengths = Tensor{6, 1, 4, 0}};
    const RnnResult a = run(kind, x, weights, inputs, {.bidirectional = true}),
                    b = run(kind, turned, weights, inputs, {.bidirectional = true, .batch_first = true});
    CHECK_VALUES(b.output.transpose(0, 1), a.output, 0, 1e-6);
    CHECK_VALUES(b.state.h, a.state.h, 0, 1e-6);
    (sum(square(a.output)) + sum(a.state.h)).backward();
    const std::vector<double> expected = values(weights[0].w_hh.grad());
    weights[0].w_hh.set_grad({});
    (sum(square(b.output)) + sum(b.state.h)).backward();
    CHECK_VALUES(turned.grad().transpose(0, 1), x.grad(), 1e-5, 1e-6);
    CHECK_VALUES(weights[0].w_hh.grad(), expected, 1e-4, 1e-5);
    // A view of other memory as input.
    CHECK_VALUES(run(kind, turned.transpose(0, 1), weights, inputs, {.bidirectional = true}).output, a.output, 0, 1e-6);
  }
}

TEST_CASE("recurrent layers: a sequence in two parts, the state handed on") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  manual_seed(6);
  for (const RnnKind kind : kKinds) {
    const Sizes s{7, 3, 4, 5, 2, 1};
    const std::vector<RnnWeights> weights = random_weights(kind, s, kFloat32);
    const Tensor x = randn({7, 3, 4});
    const NoGradGuard guard;
    const RnnResult whole = run(kind, x, weights), first = run(kind, x.slice(0, 0, 4), weights),
                    rest = run(kind, x.slice(0, 4), weights, {.state = first.state});
    CHECK_VALUES(concatenate({first.output, rest.output}, 0), whole.output, 1e-5, 1e-6);
    CHECK_VALUES(rest.state.h, whole.state.h, 1e-5, 1e-6);
    CHECK_FALSE(whole.output.requires_grad());
  }
}

TEST_CASE("recurrent layers: no samples, no steps, samples without steps") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  for (const RnnKind kind : kKinds) {
    const Sizes s{4, 2, 3, 5, 1, 2};
    const std::vector<RnnWeights> weights = random_weights(kind, s, kFloat32);
    CHECK(run(kind, zeros({4, 0, 3}), weights, {}, {.bidirectional = true}).output.sizes() == Dims({4, 0, 10}));
    const Tensor h = ones({2, 2, 5});
    const RnnResult none = run(kind, zeros({0, 2, 3}), weights, {.state = {h}}, {.bidirectional = true});
    CHECK(none.output.sizes() == Dims({0, 2, 10}));
    CHECK_VALUES(none.state.h, h);
    const RnnResult waiting = run(kind, ones({4, 2, 3}), weights, {.lengths = Tensor{0, 4}, .state = {h}}, {.bidirectional = true});
    CHECK_VALUES(waiting.state.h.narrow(1, 0, 1), ones({2, 1, 5}));
    CHECK_VALUES(waiting.output.narrow(1, 0, 1), zeros({4, 1, 10}));
  }
}

TEST_CASE("recurrent results do not depend on the number of threads") {
  const DeviceScope cpu("/CPU:0");
  const int threads = config::get_num_threads();
  for (const RnnKind kind : kKinds) {
    std::vector<std::vector<float>> seen;
    for (const int n : {1, 2, 3}) {
      config::set_num_threads(n);
      manual_seed(8);
      const std::vector<RnnWeights> weights = random_weights(kind, {6, 70, 8, 20, 1, 2}, kFloat32);
      const Tensor x = leaf(randn({6, 70, 8}));
      const RnnResult r = run(kind, x, weights, {}, {.bidirectional = true});
      sum(square(r.output)).backward();
      seen.push_back(r.output.to_vector<float>());
      for (const Tensor& g : {x.grad(), weights[1].w_hh.grad()}) {
        const std::vector<float> more = g.to_vector<float>();
        seen.back().insert(seen.back().end(), more.begin(), more.end());
      }
    }
    CHECK(seen[0] == seen[1]);
    CHECK(seen[0] == seen[2]);
  }
  config::set_num_threads(threads);
}

TEST_CASE("recurrent layers in mixed precision: input products in the half type, the recurrence in float32") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  manual_seed(13);
  const std::vector<RnnWeights> weights = random_weights(RnnKind::lstm, {5, 3, 8, 6, 2, 2}, kFloat32);
  const Tensor x = leaf(randn({5, 3, 8}));
  const RnnResult plain = lstm(x, weights, {}, {.bidirectional = true});
  const Tensor expected = grad({sum(square(plain.output))}, {x})[0];
  const Autocast autocast;
  const RnnResult mixed = lstm(x, weights, {}, {.bidirectional = true}), half = lstm(x.to(kBFloat16), weights, {}, {.bidirectional = true});
  CHECK_VALUES(mixed.output, plain.output, 0.02, 0.02);
  CHECK(mixed.output.dtype() == kFloat32);
  CHECK(difference(mixed.output, plain.output, 0, 0) != "");
  CHECK(half.output.dtype() == kBFloat16);
  CHECK_VALUES(half.output, plain.output, 0.02, 0.02);
  CHECK(half.state.c.dtype() == kFloat32);
  CHECK_VALUES(grad({sum(square(mixed.output))}, {x})[0], expected, 0.05, 0.05);
}

TEST_CASE("recurrent layers say what is wrong") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const std::vector<RnnWeights> weights = random_weights(RnnKind::lstm, {4, 2, 3, 5, 1, 1}, kFloat32);
  const Tensor x = ones({4, 2, 3});
  CHECK_THROWS_WITH(lstm(ones({4, 3}), weights), ContainsSubstring("[4, 3]"));
  CHECK_THROWS_WITH(lstm(ones({4, 2, 7}), weights), ContainsSubstring("[20, 3]") && ContainsSubstring("[20, 7]"));
  CHECK_THROWS_AS(lstm(x.to(kInt64), weights), DTypeError);
  CHECK_THROWS_WITH(lstm(x, weights, {}, {.bidirectional = true}), ContainsSubstring("1 sets of weights"));
  CHECK_THROWS_WITH(lstm(x, weights, {.state = {ones({1, 3, 5})}}), ContainsSubstring("[1, 3, 5]") && ContainsSubstring("[1, 2, 5]"));
  CHECK_THROWS_WITH(lstm(x, weights, {.lengths = Tensor{4}}), ContainsSubstring("[1]"));
  CHECK_THROWS_WITH((lstm(x, weights, {.lengths = Tensor{4, 5}}), synchronize()), ContainsSubstring("5") && ContainsSubstring("sample 1"));
  CHECK_THROWS_AS((lstm(x, weights, {.lengths = Tensor{4, -1}}), synchronize()), ValueError);
  CHECK_THROWS_AS(lstm(x, weights, {.lengths = Tensor{4.f, 1.f}}), DTypeError);
  CHECK_THROWS_AS(gru(x, weights), ShapeError);
  const Tensor input = leaf(x);
  CHECK_THROWS_WITH(grad({sum(lstm(input, weights).output)}, {input}, {}, {.create_graph = true}), ContainsSubstring("create_graph"));
  CHECK_VALUES(lstm(x, weights, {.lengths = Tensor{4, 4}}).output, lstm(x, weights).output);
}

TEST_CASE("what the input holds past a length has no effect") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  manual_seed(9);
  for (const RnnKind kind : kKinds) {
    const std::vector<RnnWeights> weights = random_weights(kind, {4, 2, 3, 5, 2, 2}, kFloat32);
    const Tensor x = randn({4, 2, 3});
    const RnnInputs inputs{.lengths = Tensor{2, 4}};
    const Tensor expected = run(kind, x, weights, inputs, {.bidirectional = true}).output;
    Tensor dirty = x.clone();
    dirty.slice(0, 2).select(1, 0).fill_(std::numeric_limits<double>::quiet_NaN());
    dirty.requires_grad_();
    const Tensor got = run(kind, dirty, weights, inputs, {.bidirectional = true}).output;
    CHECK_VALUES(got, expected, 0, 0);
    sum(got).backward();
    CHECK_VALUES(dirty.grad().slice(0, 2).select(1, 0), zeros({2, 3}));
    for (const double v : values(weights[0].w_ih.grad())) CHECK(std::isfinite(v));
  }
}

// --------------------------------------------------------------------------------------------------------------------- modules

TEST_CASE("recurrent modules: parameters as PyTorch's") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const nn::LSTM lstm{{.input_size = 512, .hidden_size = 128, .num_layers = 2, .bidirectional = true}};
  CHECK(lstm.parameter_count() == 657408 + 395264);
  std::string names;
  for (const auto& [name, tensor] : lstm.named_parameters()) names += name + " ";
  CHECK(names ==
        "weight_ih_l0 weight_hh_l0 bias_ih_l0 bias_hh_l0 weight_ih_l0_reverse weight_hh_l0_reverse bias_ih_l0_reverse "
        "bias_hh_l0_reverse weight_ih_l1 weight_hh_l1 bias_ih_l1 bias_hh_l1 weight_ih_l1_reverse weight_hh_l1_reverse "
        "bias_ih_l1_reverse bias_hh_l1_reverse ");
  CHECK(lstm.parameter("weight_ih_l1").sizes() == Dims({512, 256}));
  CHECK(lstm.parameter("weight_hh_l0_reverse").sizes() == Dims({512, 128}));
  for (const auto& [name, tensor] : lstm.named_parameters()) {
    const double bound = 1 / std::sqrt(128.0);
    INFO(name);
    CHECK(max(tensor).item<double>() <= bound);
    CHECK(min(tensor).item<double>() >= -bound);
    CHECK(max(abs(tensor)).item<double>() > 0.9 * bound);
  }
  CHECK(nn::GRU{{.input_size = 512, .hidden_size = 128, .bidirectional = true}}.parameter_count() == 493056);
  CHECK(nn::GRU{{.input_size = 4, .hidden_size = 3, .bias = false}}.parameter_count() == 9 * 7);
  CHECK(nn::RNN{{.input_size = 4, .hidden_size = 3}}.parameter_count() == 3 * 9);
}

TEST_CASE("recurrent modules compute what their functions compute") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  manual_seed(10);
  const Tensor x = randn({5, 3, 4});
  const nn::RecurrentOptions options{.input_size = 4, .hidden_size = 6, .num_layers = 2, .bidirectional = true};
  const auto weights_of = [](const nn::Module& m) {
    const std::vector<Tensor> p = m.parameters();
    std::vector<RnnWeights> all;
    for (std::size_t i = 0; i < p.size(); i += 4) all.push_back({p[i], p[i + 1], p[i + 2], p[i + 3]});
    return all;
  };
  const auto check = [&](const nn::Recurrent& layer, RnnKind kind) {
    const RnnResult expected = run(kind, x, weights_of(layer), {.lengths = Tensor{5, 2, 3}}, {.bidirectional = true});
    const RnnResult got = layer.run(x, {.lengths = Tensor{5, 2, 3}});
    CHECK_VALUES(got.output, expected.output);
    CHECK_VALUES(got.state.h, expected.state.h);
    CHECK_VALUES(layer(x), run(kind, x, weights_of(layer), {}, {.bidirectional = true}).output);
  };
  check(nn::LSTM{options}, RnnKind::lstm);
  check(nn::GRU{options}, RnnKind::gru);
  check(nn::RNN{options}, RnnKind::tanh);
  nn::RecurrentOptions changed = options;
  changed.reset = GruReset::before;
  check(nn::GRU{changed}, RnnKind::gru_reset_before);
  changed.activation = RnnActivation::relu;
  check(nn::RNN{changed}, RnnKind::relu);
  changed.batch_first = true;
  const nn::LSTM turned{changed};
  CHECK(turned(x.transpose(0, 1)).sizes() == Dims({3, 5, 12}));
}

TEST_CASE("recurrent modules: dropout between layers, in training only") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  manual_seed(11);
  const Tensor x = randn({5, 3, 4});
  const nn::GRU one{{.input_size = 4, .hidden_size = 6, .dropout = 0.5}},
      two{{.input_size = 4, .hidden_size = 6, .num_layers = 2, .dropout = 0.5}};
  CHECK_VALUES(one(x), one(x), 0, 0);
  CHECK(difference(two(x), two(x), 0, 0) != "");
  two.eval();
  CHECK_VALUES(two(x), two(x), 0, 0);
}

TEST_CASE("recurrent modules: first weights in Keras's way, other dtypes, bad options") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  manual_seed(12);
  const nn::LSTM lstm{{.input_size = 7, .hidden_size = 5, .init = nn::Init::keras}};
  const Tensor w = lstm.parameter("weight_hh_l0");
  CHECK_VALUES(matmul(transpose(w, 0, 1), w), eye(5), 1e-5, 1e-5);
  CHECK_VALUES(lstm.parameter("bias_ih_l0"), concatenate({zeros({5}), ones({5}), zeros({10})}, 0));
  CHECK(max(abs(lstm.parameter("weight_ih_l0"))).item<double>() <= std::sqrt(6.0 / 27));
  const nn::GRU half{{.input_size = 4, .hidden_size = 3, .dtype = kFloat16}};
  CHECK(half(ones({2, 2, 4}, {.dtype = kFloat16})).dtype() == kFloat16);
  const nn::GRU wide{{.input_size = 4, .hidden_size = 3, .dtype = kFloat64}};
  const Tensor y = wide(ones({2, 2, 4}, {.dtype = kFloat64}));
  CHECK(y.dtype() == kFloat64);
  sum(y).backward();
  CHECK(wide.parameter("weight_hh_l0").grad().dtype() == kFloat64);
  CHECK_THROWS_AS((nn::LSTM{{.input_size = 0, .hidden_size = 3}}), ValueError);
  CHECK_THROWS_AS((nn::LSTM{{.input_size = 3, .hidden_size = 3, .num_layers = 0}}), ValueError);
  CHECK_THROWS_AS((nn::GRU{{.input_size = 3, .hidden_size = 3, .dropout = 1.5}}), ValueError);
}

namespace {
struct Reader : nn::Module {
  nn::LSTM lstm{{.input_size = 5, .hidden_size = 6, .num_layers = 2, .bidirectional = true, .dropout = 0.3}};
  nn::GRU gru{{.input_size = 12, .hidden_size = 260}};  // so many units go step by step on a GPU
  nn::Linear fc{260, 4};
  Reader() {
    register_module("lstm", lstm);
    register_module("gru", gru);
    register_module("fc", fc);
  }
};
}  // namespace

TEST_CASE("captured steps of recurrent layers and CTC train as steps run op by op") {
  const Device device = GENERATE(from_range(test_devices()));
  const DeviceScope scope(device);
  const auto train = [&](bool captured) {
    manual_seed(14);
    Reader net;
    optim::SGD optimizer(net.named_parameters(), {.lr = 0.1});
    const auto body = [&](const std::vector<Tensor>& in) {
      optimizer.zero_grad();
      const Tensor features = net.lstm.run(in[0], {.lengths = in[2]}).output;
      const Tensor loss = ctc_loss_with_logits(net.fc(net.gru(features)), in[1], in[2]);
      loss.backward();
      optimizer.step();
      return loss;
    };
    CapturedStep step = capture(body);
    std::vector<double> numbers;
    for (int i = 0; i < 6; ++i) {
      const std::vector<Tensor> in{randn({7, 3, 5}), randint(1, 4, {3, 2}), randint(5, 8, {3})};
      numbers.push_back((captured ? step(in)[0] : body(in)).item<double>());
    }
    CHECK(step.is_captured() == (captured && device.is_gpu()));
    for (const Tensor& p : net.parameters())
      for (const double v : values(p)) numbers.push_back(v);
    return numbers;
  };
  const std::vector<double> captured = train(true), plain = train(false);
  CHECK(difference(captured, plain, 1e-5, 1e-6) == "");
  CHECK(plain[5] != plain[0]);
}
