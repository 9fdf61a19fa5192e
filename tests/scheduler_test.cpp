// Learning-rate schedules and early stopping against sequences worked out by hand.
#include "test_tensors.hpp"

using namespace tensorlite;
using namespace tensorlite::optim;
using Catch::Matchers::ContainsSubstring;

namespace {

/// An optimizer to schedule.
struct Rates {
  Tensor a = leaf(zeros({1})), b = leaf(zeros({1}));
  SGD sgd{{{{{"a", a}}, {.lr = 1}}, {{{"b", b}}, {.lr = 0.5}}}};
  double lr(std::size_t group = 0) const { return sgd.lr(group); }
};

template <class S> std::vector<double> rates(S& scheduler, const SGD& sgd, int epochs) {
  std::vector<double> list;
  for (int i = 0; i < epochs; ++i) {
    scheduler.step();
    list.push_back(sgd.lr());
  }
  return list;
}

/// The rate after each epoch with these values of the metric.
std::vector<double> rates(ReduceLROnPlateau& plateau, const SGD& sgd, const std::vector<double>& metric) {
  std::vector<double> list;
  for (const double value : metric) {
    const double before = sgd.lr();
    const bool reduced = plateau.step({{"loss", value}});
    CHECK(reduced == (sgd.lr() < before));
    list.push_back(sgd.lr());
  }
  return list;
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

TEST_CASE("StepLR multiplies every step_size epochs, all groups") {
  Rates r;
  StepLR step(r.sgd, {.step_size = 2, .gamma = 0.5});
  CHECK_VALUES(rates(step, r.sgd, 5), {1, 0.5, 0.5, 0.25, 0.25}, 1e-15);
  CHECK(r.lr(1) == Approx(0.125));
  CHECK(step.epoch() == 5);
  CHECK_THROWS_AS(StepLR(r.sgd, {.step_size = 0}), ValueError);
}

TEST_CASE("ExponentialLR multiplies every epoch") {
  Rates r;
  ExponentialLR exponential(r.sgd, {.gamma = 0.7});
  CHECK_VALUES(rates(exponential, r.sgd, 3), {0.7, 0.49, 0.343}, 1e-12);
  CHECK_THROWS_AS(ExponentialLR(r.sgd, {.gamma = -1}), ValueError);
}

TEST_CASE("CosineLR goes down half a cosine and stays") {
  Rates r;
  CosineLR cosine(r.sgd, {.epochs = 4, .min_lr = 0.2});
  // 0.2 + 0.8 * (1 + cos(k pi / 4)) / 2
  const double h = std::sqrt(0.5);
  CHECK_VALUES(rates(cosine, r.sgd, 6), {0.6 + 0.4 * h, 0.6, 0.6 - 0.4 * h, 0.2, 0.2, 0.2}, 1e-12);
  CHECK_THROWS_AS(CosineLR(r.sgd, {.epochs = 0}), ValueError);
}

TEST_CASE("a schedule continues from its state") {
  Rates straight, parted;
  CosineLR all(straight.sgd, {.epochs = 10}), first(parted.sgd, {.epochs = 10});
  rates(all, straight.sgd, 6);
  rates(first, parted.sgd, 4);
  Rates resumed;
  resumed.sgd.load_state_dict(parted.sgd.state_dict());
  CosineLR second(resumed.sgd, {.epochs = 10});
  second.load_state_dict(first.state_dict());
  CHECK(resumed.lr() == parted.lr());
  rates(second, resumed.sgd, 2);
  CHECK(resumed.lr() == straight.lr());
  CHECK(resumed.lr(1) == straight.lr(1));
  CHECK_THROWS_WITH(second.load_state_dict({{"epoch", scalar(3)}}), ContainsSubstring("'group.0.base_lr' is missing"));
  CHECK(second.epoch() == 6);
}

TEST_CASE("ReduceLROnPlateau counts patience as PyTorch does, or as Keras does") {
  // Best 5; then bad epochs 1, 2, 3, 4...
  const std::vector<double> metric{5, 6, 6, 6, 6, 6, 6};
  Rates p, k;
  ReduceLROnPlateau pytorch(p.sgd, {.monitor = "loss", .factor = 0.5, .patience = 2});
  CHECK_VALUES(rates(pytorch, p.sgd, metric), {1, 1, 1, 0.5, 0.5, 0.5, 0.25});
  ReduceLROnPlateau keras(k.sgd, {.monitor = "loss", .factor = 0.5, .patience = 2, .convention = Convention::keras});
  CHECK_VALUES(rates(keras, k.sgd, metric), {1, 1, 0.5, 0.5, 0.25, 0.25, 0.125});
  CHECK(k.lr(1) == Approx(0.0625));
  CHECK(keras.best() == 5);
}

TEST_CASE("ReduceLROnPlateau: threshold, mode, NaN, min_lr") {
  Rates r;
  ReduceLROnPlateau relative(r.sgd, {.monitor = "loss", .factor = 0.5, .patience = 0, .threshold = 0.1});
  // 95 is within 10 % of 100, 89 is not; NaN is never better.
  CHECK_VALUES(rates(relative, r.sgd, {100, 95, 89, kNan, 70}), {1, 0.5, 0.5, 0.25, 0.25});

  Rates s;
  ReduceLROnPlateau absolute(s.sgd, {.monitor = "loss",
                                     .mode = Mode::max,
                                     .factor = 0.1,
                                     .patience = 0,
                                     .threshold = 1,
                                     .threshold_kind = Threshold::absolute,
                                     .min_lr = 0.05});
  CHECK_VALUES(rates(absolute, s.sgd, {10, 11, 11.5, 11.7, 11.7, 13}), {1, 0.1, 0.1, 0.05, 0.05, 0.05}, 1e-12);
}

TEST_CASE("ReduceLROnPlateau: epochs of the cooldown do not count") {
  const std::vector<double> metric{5, 6, 6, 6, 6, 6, 6};
  Rates p, k;
  ReduceLROnPlateau pytorch(p.sgd, {.monitor = "loss", .factor = 0.5, .patience = 0, .cooldown = 2});
  CHECK_VALUES(rates(pytorch, p.sgd, metric), {1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25});
  ReduceLROnPlateau keras(k.sgd, {.monitor = "loss", .factor = 0.5, .patience = 1, .cooldown = 2, .convention = Convention::keras});
  CHECK_VALUES(rates(keras, k.sgd, metric), {1, 0.5, 0.5, 0.25, 0.25, 0.125, 0.125});
}

TEST_CASE("an unknown monitor is an error that lists what there is") {
  Rates r;
  ReduceLROnPlateau plateau(r.sgd, {.monitor = "val_acc", .mode = Mode::max});
  CHECK_THROWS_MATCHES(plateau.step({{"val_accuracy", 0.9}, {"loss", 1}}), ValueError,
                       Catch::Matchers::Predicate<ValueError>([](const ValueError& e) {
                         const std::string text = e.what();
                         return text.find("'val_acc'") != text.npos && text.find("loss, val_accuracy") != text.npos;
                       }));
  EarlyStopping stopping({.monitor = "val_acc"});
  CHECK_THROWS_WITH(stopping.step({{"loss", 1}}), ContainsSubstring("there are: loss"));
  CHECK_THROWS_WITH(stopping.step({}), ContainsSubstring("there are none"));
  CHECK(stopping.best_epoch() == 0);
}

TEST_CASE("a plateau continues from its state") {
  Rates a, b;
  const ReduceLROnPlateauOptions options{.monitor = "loss", .factor = 0.5, .patience = 2, .cooldown = 1};
  ReduceLROnPlateau straight(a.sgd, options), first(b.sgd, options);
  rates(straight, a.sgd, {5, 6, 6, 6, 6, 6, 6, 6});
  rates(first, b.sgd, {5, 6, 6, 6, 6});
  ReduceLROnPlateau second(b.sgd, options);
  second.load_state_dict(first.state_dict());
  rates(second, b.sgd, {6, 6, 6});
  CHECK(a.lr() == b.lr());
  CHECK(a.lr() == 0.25);
  CHECK_THROWS_AS(ReduceLROnPlateau(a.sgd, {.factor = 1}), ValueError);
  CHECK_THROWS_AS(ReduceLROnPlateau(a.sgd, {.patience = -1}), ValueError);
  CHECK_THROWS_AS(ReduceLROnPlateau(a.sgd, {.threshold = -1}), ValueError);
}

TEST_CASE("EarlyStopping stops after patience epochs and knows the best") {
  EarlyStopping stopping({.monitor = "loss", .patience = 2, .min_delta = 0.5});
  std::vector<double> stops, improvements;
  for (const double loss : {5.0, 4.8, 4.0, kNan, 3.9}) {
    stops.push_back(stopping.step({{"loss", loss}}));
    improvements.push_back(stopping.improved());
  }
  CHECK_VALUES(stops, {0, 0, 0, 0, 1});
  CHECK_VALUES(improvements, {1, 0, 1, 0, 0});
  CHECK(stopping.best() == 4.0);
  CHECK(stopping.best_epoch() == 3);
  EarlyStopping resumed({.monitor = "loss", .patience = 2, .min_delta = 0.5});
  resumed.load_state_dict(stopping.state_dict());
  CHECK(resumed.best_epoch() == 3);
  CHECK_FALSE(resumed.step({{"loss", 1}}));
  CHECK(resumed.improved());
}
