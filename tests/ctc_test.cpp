// CTC: losses and gradients against the enumeration of all paths, reductions, lengths, errors; decoding and the metrics of sequences.
#include "test_tensors.hpp"

#include <tensorlite/metrics.hpp>

#include <functional>
#include <limits>
#include <map>

using namespace tensorlite;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Labels collapsed(const std::vector<std::int64_t>& path, std::int64_t blank) {
  Labels labels;
  for (std::size_t t = 0; t < path.size(); ++t)
    if (path[t] != blank && (t == 0 || path[t] != path[t - 1])) labels.push_back(path[t]);
  return labels;
}

/// Probability of every label sequence, from all classes^frames paths. log_probs: [frames, classes], float64.
std::map<Labels, double> probabilities(const Tensor& log_probs, std::int64_t blank) {
  const std::int64_t frames = log_probs.size(0), classes = log_probs.size(1);
  const std::vector<double> scores = values(log_probs);
  std::map<Labels, double> all;
  std::vector<std::int64_t> path(static_cast<std::size_t>(frames), 0);
  const std::function<void(std::int64_t, double)> walk = [&](std::int64_t t, double sum) {
    if (t == frames) {
      all[collapsed(path, blank)] += std::exp(sum);
      return;
    }
    for (std::int64_t c = 0; c < classes; ++c) {
      path[static_cast<std::size_t>(t)] = c;
      walk(t + 1, sum + scores[static_cast<std::size_t>(t * classes + c)]);
    }
  };
  walk(0, 0);
  return all;
}

/// Scores, targets and lengths of a batch with targets of every kind: none, repeats, one too long.
struct Batch {
  Tensor log_probs, targets, frames, counts;
};
Batch random_batch(std::int64_t blank, DType dtype) {
  const std::vector<std::int64_t> labels = {1, 2, 3, 2, 2, 0, 3, 0, 0, 1, 1, 1, 3, 3, 3, 2, 1, 3};  // classes 0..3 but the blank
  std::vector<std::int64_t> targets;
  for (const std::int64_t label : labels) targets.push_back(label == 0 || label == blank ? (blank + 1) % 4 : label);
  return {log_softmax(randn({5, 6, 4}, {.dtype = dtype}) * 2, 2), from_vector(targets, {6, 3}), Tensor{5, 5, 4, 5, 3, 2},
          Tensor{3, 2, 0, 3, 3, 1}};
}

}  // namespace

TEST_CASE("CTC losses agree with the enumeration of all paths, for any blank") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  manual_seed(1);
  for (const DType dtype : {kFloat32, kFloat64})
    for (std::int64_t blank = 0; blank < 4; ++blank) {
      const Batch b = random_batch(blank, dtype);
      const std::vector<double> losses =
          values(ctc_loss(b.log_probs, b.targets, b.frames, b.counts, {.blank = blank, .reduction = Reduction::none}));
      const std::vector<std::int64_t> targets = b.targets.cpu().to_vector<std::int64_t>(),
                                      frames = b.frames.cpu().to_vector<std::int64_t>(), counts = b.counts.cpu().to_vector<std::int64_t>();
      for (std::size_t n = 0; n < 6; ++n) {
        INFO("blank " << blank << ", sample " << n);
        const auto all = probabilities(b.log_probs.select(1, static_cast<std::int64_t>(n)).slice(0, 0, frames[n]), blank);
        const Labels target(targets.begin() + static_cast<std::ptrdiff_t>(3 * n),
                            targets.begin() + static_cast<std::ptrdiff_t>(3 * n) + counts[n]);
        const auto found = all.find(target);
        if (found == all.end()) CHECK(losses[n] == kInfinity);
        else CHECK(losses[n] == Approx(-std::log(found->second)).epsilon(1e-5));
      }
    }
}

TEST_CASE("CTC gradients agree with differences") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  manual_seed(2);
  for (const std::int64_t blank : {0, 2}) {
    const Batch b = random_batch(blank, kFloat64);
    for (const CtcMean mean_over : {CtcMean::target_length, CtcMean::batch}) {
      const CtcLossOptions options{.blank = blank, .mean_over = mean_over, .zero_infinity = true};
      const auto check = [&](auto loss, const Tensor& x) {
        const GradcheckResult result =
            gradcheck([&](const std::vector<Tensor>& in) { return loss(in[0], b.targets, b.frames, b.counts, options); }, {leaf(x)});
        INFO(result.message);
        CHECK(result.ok);
      };
      check(ctc_loss, b.log_probs);
      check(ctc_loss_with_logits, randn({5, 6, 4}, {.dtype = kFloat64}) * 3);
    }
  }
}

TEST_CASE("CTC of logits is CTC of their log-softmax") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  manual_seed(3);
  const Batch b = random_batch(0, kFloat32);
  const Tensor x = leaf(randn({5, 6, 4}) * 3), y = leaf(x);
  const CtcLossOptions options{.reduction = Reduction::sum, .zero_infinity = true};
  const Tensor one = ctc_loss_with_logits(x, b.targets, b.frames, b.counts, options),
               two = ctc_loss(log_softmax(y, 2), b.targets, b.frames, b.counts, options);
  CHECK_VALUES(one, two, 1e-5, 1e-5);
  one.backward();
  two.backward();
  CHECK_VALUES(x.grad(), y.grad(), 1e-5, 1e-5);
}

TEST_CASE("CTC reductions and defaults") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  manual_seed(4);
  const Tensor lp = log_softmax(randn({6, 3, 5}), 2), targets{{1, 2}, {3, 3}, {4, 1}}, counts{2, 1, 0};
  const std::vector<double> l = values(ctc_loss(lp, targets, {}, counts, {.reduction = Reduction::none}));
  CHECK_VALUES(ctc_loss(lp, targets, {}, counts, {.reduction = Reduction::sum}), {l[0] + l[1] + l[2]});
  CHECK_VALUES(ctc_loss(lp, targets, {}, counts), {(l[0] / 2 + l[1] + l[2]) / 3});  // a target of no labels counts as one
  CHECK_VALUES(ctc_loss(lp, targets, {}, counts, {.mean_over = CtcMean::batch}), {(l[0] + l[1] + l[2]) / 3});
  const std::vector<double> full = values(ctc_loss(lp, targets, {}, {}, {.reduction = Reduction::none}));
  CHECK_VALUES(ctc_loss(lp, targets), {(full[0] + full[1] + full[2]) / 6});
  CHECK(full[0] == l[0]);
  // Other memory, other integers.
  const Tensor turned = lp.transpose(0, 1).contiguous().transpose(0, 1);
  CHECK_VALUES(ctc_loss(turned, targets.to(kInt32), Tensor{6, 6, 6}.to(kInt32)), {(full[0] + full[1] + full[2]) / 6});
}

TEST_CASE("CTC of long sequences stays finite, and every frame is in some state") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  manual_seed(5);
  const Tensor x = leaf(log_softmax(randn({300, 4, 30}) * 5, 2));
  const Tensor targets = randint(1, 30, {4, 100});
  const Tensor loss = ctc_loss(x, targets, {}, {}, {.reduction = Reduction::sum});
  CHECK(std::isfinite(loss.item<double>()));
  loss.backward();
  CHECK_VALUES(sum(x.grad(), {2}), full({300, 4}, -1.0), 1e-4, 1e-4);
  CHECK(max(x.grad()).item<double>() <= 0);
}

TEST_CASE("CTC results do not depend on the number of threads") {
  const DeviceScope cpu("/CPU:0");
  manual_seed(6);
  const int threads = config::get_num_threads();
  const Tensor lp = log_softmax(randn({20, 9, 12}), 2), targets = randint(1, 12, {9, 5});
  std::vector<std::vector<float>> seen;
  for (const int n : {1, 2, 3}) {
    config::set_num_threads(n);
    const Tensor x = leaf(lp);
    ctc_loss(x, targets).backward();
    seen.push_back(x.grad().to_vector<float>());
  }
  config::set_num_threads(threads);
  CHECK(seen[0] == seen[1]);
  CHECK(seen[0] == seen[2]);
}

TEST_CASE("CTC says what is wrong") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const Tensor lp = log_softmax(zeros({4, 2, 3}), 2), targets{{1, 2}, {2, 1}};
  CHECK_THROWS_WITH(ctc_loss(zeros({4, 3}), targets), ContainsSubstring("[4, 3]"));
  CHECK_THROWS_WITH(ctc_loss(lp, Tensor{1, 2}), ContainsSubstring("[2]"));
  CHECK_THROWS_WITH(ctc_loss(lp, Tensor{{1, 2}}), ContainsSubstring("[1, 2]"));
  CHECK_THROWS_AS(ctc_loss(lp, targets.to(kFloat32)), DTypeError);
  CHECK_THROWS_AS(ctc_loss(lp.to(kInt32), targets), DTypeError);
  CHECK_THROWS_WITH(ctc_loss(lp, targets, {}, {}, {.blank = 3}), ContainsSubstring("3") && ContainsSubstring("0..2"));
  CHECK_THROWS_WITH((ctc_loss(lp, Tensor{{1, 2}, {2, 7}}), synchronize()), ContainsSubstring("label 7") && ContainsSubstring("sample 1"));
  CHECK_THROWS_AS((ctc_loss(lp, Tensor{{1, 2}, {2, 7}}), synchronize()), IndexError);
  CHECK_THROWS_AS((ctc_loss(lp, Tensor{{1, -1}, {2, 1}}), synchronize()), IndexError);
  CHECK_THROWS_WITH((ctc_loss(lp, Tensor{{1, 0}, {2, 1}}), synchronize()), ContainsSubstring("blank"));
  CHECK_THROWS_WITH((ctc_loss(lp, targets, Tensor{4, 5}), synchronize()), ContainsSubstring("5") && ContainsSubstring("0..4"));
  CHECK_THROWS_AS((ctc_loss(lp, targets, Tensor{4, -1}), synchronize()), ValueError);
  CHECK_THROWS_WITH((ctc_loss(lp, targets, {}, Tensor{3, 0}), synchronize()), ContainsSubstring("3") && ContainsSubstring("0..2"));
  CHECK_THROWS_WITH(ctc_loss(lp, targets, Tensor{4}), ContainsSubstring("[1]"));
  const Tensor x = leaf(lp);
  CHECK_THROWS_WITH(grad({ctc_loss(x, targets)}, {x}, {}, {.create_graph = true}), ContainsSubstring("create_graph"));
  // What stands past a target's length is not looked at.
  CHECK(std::isfinite(ctc_loss(lp, Tensor{{1, -100}, {2, 1}}, {}, Tensor{1, 2}).item<double>()));
}

TEST_CASE("CTC: no samples, no frames") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  CHECK(ctc_loss(zeros({4, 0, 3}), zeros({0, 2}, {.dtype = kInt64}), {}, {}, {.reduction = Reduction::none}).numel() == 0);
  const Tensor x = leaf(log_softmax(zeros({2, 3, 3}), 2));
  const Tensor loss = ctc_loss(x, Tensor{{1}, {1}, {2}}, Tensor{0, 0, 1}, Tensor{0, 1, 1}, {.reduction = Reduction::none});
  CHECK_VALUES(loss, {0, kInfinity, std::log(3.0)});
  sum(loss).backward();
  CHECK_VALUES(x.grad().slice(1, 0, 2), zeros({2, 2, 3}));
  CHECK_VALUES(x.grad().select(1, 2), {0, 0, -1, 0, 0, 0});
  const Tensor empty_targets = zeros({3, 0}, {.dtype = kInt64});
  CHECK_VALUES(ctc_loss(x, empty_targets, {}, {}, {.reduction = Reduction::none}),
               {2 * std::log(3.0), 2 * std::log(3.0), 2 * std::log(3.0)});
}

// -------------------------------------------------------------------------------------------------------------------- decoding

TEST_CASE("beam search finds the most probable sequences of all") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  manual_seed(7);
  for (const std::int64_t blank : {0, 3}) {
    const Tensor lp = log_softmax(randn({5, 3, 4}, {.dtype = kFloat64}), 2);
    const auto found = ctc_beam_search_decode(lp, {.blank = blank, .lengths = Tensor{5, 4, 0}, .beam_width = 1000, .results = 3});
    for (std::int64_t n = 0; n < 2; ++n) {
      std::vector<std::pair<double, Labels>> all;
      for (const auto& [labels, p] : probabilities(lp.select(1, n).slice(0, 0, n == 0 ? 5 : 4), blank)) all.emplace_back(p, labels);
      std::sort(all.rbegin(), all.rend());
      const auto& best = found[static_cast<std::size_t>(n)];
      REQUIRE(best.size() == 3);
      for (std::size_t i = 0; i < 3; ++i) {
        CHECK(best[i].labels == all[i].second);
        CHECK(best[i].log_probability == Approx(std::log(all[i].first)));
      }
    }
    REQUIRE(found[2].size() == 1);
    CHECK(found[2][0].labels.empty());
  }
}

TEST_CASE("beam search sums alignments where the best path alone misleads") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  // Blank 0.6 and label 1 0.4 in both frames: the best path is all blank (0.36), yet [1] has 0.64.
  const Tensor lp = log(Tensor{{0.6f, 0.4f}, {0.6f, 0.4f}}).reshape({2, 1, 2});
  CHECK(ctc_greedy_decode(lp)[0].empty());
  const auto best = ctc_beam_search_decode(lp, {.beam_width = 4});
  CHECK(best[0][0].labels == Labels{1});
  CHECK(best[0][0].log_probability == Approx(std::log(0.64)));
  CHECK_THROWS_AS(ctc_beam_search_decode(lp, {.beam_width = 0}), ValueError);
  CHECK_THROWS_AS(ctc_greedy_decode(lp, {.blank = 2}), ValueError);
  CHECK_THROWS_AS(ctc_greedy_decode(lp, {.lengths = Tensor{3}}), ValueError);
  CHECK_THROWS_AS(ctc_greedy_decode(zeros({2, 2})), ShapeError);
}

TEST_CASE("edit distance and exact match") {
  using metrics::edit_distance;
  CHECK(edit_distance({}, {}) == 0);
  CHECK(edit_distance({1, 2, 3}, {}) == 3);
  CHECK(edit_distance({}, {1, 2}) == 2);
  CHECK(edit_distance({1, 2, 3}, {1, 2, 3}) == 0);
  CHECK(edit_distance({1, 2, 3}, {1, 3}) == 1);
  CHECK(edit_distance({1, 2, 3}, {2, 3, 4}) == 2);
  CHECK(edit_distance({11, 9, 20, 20, 5, 14}, {19, 9, 20, 20, 9, 14, 7}) == 3);  // kitten, sitting
  CHECK(metrics::exact_match({{1, 2}, {}, {3}}, {{1, 2}, {}, {3, 3}}) == Approx(2.0 / 3));
  CHECK_THROWS_AS(metrics::exact_match({{1}}, {}), ValueError);
}
