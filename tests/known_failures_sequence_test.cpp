// Inputs on which tensor libraries are known to have failed: recurrent layers, CTC.
#include "test_tensors.hpp"

#include <limits>

using namespace tensorlite;

namespace {
constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr CtcLossOptions kEach{.reduction = Reduction::none};

/// The loss of every sample and the gradient of their sum, by both ways to the logits' gradient.
void check_ctc(const Tensor& logits, const Tensor& targets, const Tensor& frames, const Tensor& counts, const CtcLossOptions& options,
               const std::vector<double>& losses, const std::vector<double>& gradient) {
  const Tensor x = leaf(logits), y = leaf(logits);
  const Tensor direct = ctc_loss_with_logits(x, targets, frames, counts, options),
               composed = ctc_loss(log_softmax(y, 2), targets, frames, counts, options);
  CHECK_VALUES(direct, losses, 1e-5, 1e-6);
  CHECK_VALUES(composed, losses, 1e-5, 1e-6);
  sum(direct).backward();
  sum(composed).backward();
  CHECK_VALUES(x.grad(), gradient, 1e-5, 1e-6);
  CHECK_VALUES(y.grad(), gradient, 1e-5, 1e-6);
}
}  // namespace

TEST_CASE("A02 CTC without a valid alignment", "[known][ctc]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const std::vector<double> none(6);
  check_ctc(zeros({2, 1, 3}), Tensor{{1, 1}}, {}, {}, kEach, {kInfinity}, none);
  check_ctc(zeros({2, 1, 3}), Tensor{{1, 2, 1}}, {}, {}, kEach, {kInfinity}, none);
  const CtcLossOptions zeroed{.reduction = Reduction::none, .zero_infinity = true};
  check_ctc(zeros({2, 1, 3}), Tensor{{1, 1}}, {}, {}, zeroed, {0}, none);
  check_ctc(zeros({2, 1, 3}), Tensor{{1, 2, 1}}, {}, {}, zeroed, {0}, none);
  const double t = 1.0 / 3;
  check_ctc(zeros({3, 1, 3}), Tensor{{1, 1}}, {}, {}, kEach, {3.2958369}, {t, -2 * t, t, -2 * t, t, t, t, -2 * t, t});
  // Beside a sample that fits, which stays as it is.
  check_ctc(zeros({3, 2, 3}), Tensor{{1, 1}, {1, 1}}, Tensor{3, 2}, {}, zeroed, {3.2958369, 0},
            {t, -2 * t, t, 0, 0, 0, -2 * t, t, t, 0, 0, 0, t, -2 * t, t, 0, 0, 0});
}

TEST_CASE("A03 CTC of an empty target", "[known][ctc]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const double t = 1.0 / 3, s = 1.0 / 6;
  check_ctc(zeros({3, 2, 3}), Tensor{{0}, {1}}, {}, Tensor{0, 1}, kEach, {3.2958369, 1.5040774},
            {-2 * t, t, t, -s, -s, t, -2 * t, t, t, 0, -t, t, -2 * t, t, t, -s, -s, t});
}

TEST_CASE("A04 CTC of a batch with variable input lengths", "[known][ctc]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const Tensor frames{{0.f, 1.f, 2.f}, {2.f, 0.f, 1.f}, {1.f, 2.f, 0.f}, {0.f, 0.f, 1.f}};
  const Tensor targets{{2, 1}, {2, 0}}, lengths{4, 2}, counts{2, 1};
  for (const double padding : {0.0, 1e30, kNaN}) {
    INFO("padding " << padding);
    Tensor logits = stack({frames, frames}, 1);
    logits.slice(0, 2).select(1, 1).fill_(padding);
    const Tensor x = leaf(logits);
    const Tensor losses = ctc_loss_with_logits(x, targets, lengths, counts, kEach);
    CHECK_VALUES(losses, {1.4519305, 0.4661997}, 1e-6, 1e-6);
    sum(losses).backward();
    CHECK_VALUES(x.grad().select(1, 1), {0.05491155, 0.24472847, -0.29964002, -0.04014356, 0.09003057, -0.04988702, 0, 0, 0, 0, 0, 0}, 1e-5,
                 1e-6);
    CHECK_VALUES(x.grad().select(1, 1).slice(0, 2), zeros({2, 3}), 0, 0);
    CHECK_VALUES(x.grad().select(1, 0)[0], {0.0519343, 0.24472847, -0.29666277}, 1e-5, 1e-6);
    CHECK_VALUES(x.grad().select(1, 0)[3], {-0.21522257, -0.36089432, 0.57611688}, 1e-5, 1e-6);
    // Log-probabilities as input: the padding is not looked at either.
    const Tensor y = leaf(log_softmax(logits, 2));
    const Tensor again = ctc_loss(y, targets, lengths, counts, kEach);
    CHECK_VALUES(again, {1.4519305, 0.4661997}, 1e-6, 1e-6);
    sum(again).backward();
    CHECK_VALUES(y.grad().select(1, 1).slice(0, 2), zeros({2, 3}), 0, 0);
    for (std::int64_t n = 0; n < 2; ++n) {
      const std::int64_t length = n == 0 ? 4 : 2;
      const Tensor alone = leaf(frames.slice(0, 0, length).unsqueeze(1));
      const Tensor loss = ctc_loss_with_logits(alone, targets.slice(0, n, n + 1).slice(1, 0, n == 0 ? 2 : 1));
      CHECK_VALUES(loss * (n == 0 ? 2 : 1), losses[n].detach().reshape({}), 1e-6, 1e-6);
      loss.backward();
      CHECK_VALUES(alone.grad().select(1, 0) * (n == 0 ? 2 : 1), x.grad().select(1, n).slice(0, 0, length), 1e-5, 1e-6);
    }
  }
}

TEST_CASE("A55 a bidirectional recurrent layer with lengths", "[known][rnn]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  // The cell h' = x + h / 2 + 1, which relu leaves alone.
  const RnnWeights cell{Tensor{{1.f}}, Tensor{{0.5f}}, Tensor{1.f}, {}};
  const RnnResult r = rnn(Tensor{1.f, 2.f, 0.f, 0.f}.reshape({4, 1, 1}), {cell, cell}, {.lengths = Tensor{2}},
                          {.bidirectional = true, .activation = RnnActivation::relu});
  CHECK_VALUES(r.output.select(2, 0).reshape({4}), {2, 4, 0, 0});
  CHECK_VALUES(r.output.select(2, 1).reshape({4}), {3.5, 3, 0, 0});
  CHECK_VALUES(r.state.h.reshape({2}), {4, 3.5});

  manual_seed(55);
  const nn::RecurrentOptions options{.input_size = 3, .hidden_size = 5, .num_layers = 2, .bidirectional = true};
  const nn::LSTM lstm{options};
  const nn::GRU gru{options};
  const std::int64_t lengths[] = {2, 5, 1};
  const Tensor x = randn({5, 3, 3});
  for (const nn::Recurrent* layer : {static_cast<const nn::Recurrent*>(&lstm), static_cast<const nn::Recurrent*>(&gru)}) {
    const RnnResult together = layer->run(x, {.lengths = Tensor{2, 5, 1}});
    for (std::int64_t n = 0; n < 3; ++n) {
      const RnnResult alone = layer->run(x.slice(0, 0, lengths[n]).narrow(1, n, 1));
      CHECK_VALUES(together.output.slice(0, 0, lengths[n]).narrow(1, n, 1), alone.output, 1e-5, 1e-6);
      CHECK_VALUES(together.output.slice(0, lengths[n]).narrow(1, n, 1), zeros({5 - lengths[n], 1, 10}), 0, 0);
      CHECK_VALUES(together.state.h.narrow(1, n, 1), alone.state.h, 1e-5, 1e-6);
      if (alone.state.c.defined()) CHECK_VALUES(together.state.c.narrow(1, n, 1), alone.state.c, 1e-5, 1e-6);
    }
  }
}

TEST_CASE("A56 greedy CTC decoding merges before it drops blanks", "[known][ctc]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const auto decode = [](const std::vector<std::int64_t>& path, const Tensor& lengths = {}) {
    const std::int64_t frames = static_cast<std::int64_t>(path.size());
    const Tensor classes = from_vector(path);
    const Labels labels = ctc_greedy_decode(one_hot(classes, 4).reshape({frames, 1, 4}), {.lengths = lengths})[0];
    CHECK(ctc_collapse(classes.reshape({frames, 1}), {.lengths = lengths})[0] == labels);
    return labels;
  };
  CHECK(decode({1, 1, 0, 1, 1}) == Labels{1, 1});
  CHECK(decode({1, 2, 2, 0, 2, 2}) == Labels{1, 2, 2});
  CHECK(decode({0, 0, 0}).empty());
  CHECK(decode({3, 3, 3}) == Labels{3});
  CHECK(decode({1, 0, 1}, Tensor{1}) == Labels{1});
}
