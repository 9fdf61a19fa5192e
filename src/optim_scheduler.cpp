// Out-of-line L4: learning-rate schedules and early stopping.
#include <tensorlite/optim/scheduler.hpp>

#include "optim_state.hpp"

#include <cmath>
#include <numbers>

namespace tensorlite::optim {

// ----------------------------------------------------------------------------------------------------------- functions of time

Scheduler::Scheduler(const char* name, Optimizer& optimizer) : name_(name), optimizer_(&optimizer) {
  for (std::size_t g = 0; g < optimizer.group_count(); ++g) bases_.push_back(optimizer.lr(g));
}

void Scheduler::step() {
  ++epoch_;
  for (std::size_t g = 0; g < bases_.size(); ++g) optimizer_->set_lr(g, rate(bases_[g], epoch_));
}

namespace {
std::string base_key(std::size_t group) { return detail::concat("group.", group, ".base_lr"); }
}  // namespace

StateDict Scheduler::state_dict() const {
  StateDict dict{{"epoch", state_number(epoch_)}};
  for (std::size_t g = 0; g < bases_.size(); ++g) dict.emplace(base_key(g), state_number(bases_[g]));
  return dict;
}

void Scheduler::load_state_dict(const StateDict& dict) {
  StateReader reader(name_, dict);
  std::int64_t epoch = 0;
  std::vector<double> bases = bases_;
  reader.take_number("epoch", epoch);
  for (std::size_t g = 0; g < bases.size(); ++g) reader.take_number(base_key(g), bases[g]);
  reader.finish();
  epoch_ = epoch;
  bases_ = std::move(bases);
}

StepLR::StepLR(Optimizer& optimizer, const StepLROptions& options) : Scheduler("StepLR", optimizer), options_(options) {
  TL_CHECK(options.step_size > 0 && options.gamma >= 0, ValueError, "StepLR",
           "step_size must be positive and gamma not negative, they are ", options.step_size, " and ", options.gamma);
}
double StepLR::rate(double base, std::int64_t epoch) const {
  return base * std::pow(options_.gamma, static_cast<double>(epoch / options_.step_size));
}

ExponentialLR::ExponentialLR(Optimizer& optimizer, const ExponentialLROptions& options)
    : Scheduler("ExponentialLR", optimizer), options_(options) {
  TL_CHECK(options.gamma >= 0, ValueError, "ExponentialLR", "gamma must not be negative, it is ", options.gamma);
}
double ExponentialLR::rate(double base, std::int64_t epoch) const { return base * std::pow(options_.gamma, static_cast<double>(epoch)); }

CosineLR::CosineLR(Optimizer& optimizer, const CosineLROptions& options) : Scheduler("CosineLR", optimizer), options_(options) {
  TL_CHECK(options.epochs > 0 && options.min_lr >= 0, ValueError, "CosineLR", "epochs must be positive and min_lr not negative, they are ",
           options.epochs, " and ", options.min_lr);
}
double CosineLR::rate(double base, std::int64_t epoch) const {
  if (epoch >= options_.epochs) return options_.min_lr;
  const double way = static_cast<double>(epoch) / static_cast<double>(options_.epochs);
  return options_.min_lr + (base - options_.min_lr) * 0.5 * (1 + std::cos(std::numbers::pi * way));
}

// ------------------------------------------------------------------------------------------------------------ watching a metric

BestValue::BestValue(const char* name, std::string monitor, Mode mode, double threshold, Threshold kind)
    : name_(name),
      monitor_(std::move(monitor)),
      mode_(mode),
      threshold_(threshold),
      kind_(kind),
      best_(mode == Mode::min ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity()) {
  TL_CHECK(threshold >= 0, ValueError, name, "the threshold must not be negative, it is ", threshold);
}

double BestValue::pick(const Metrics& metrics) const {
  if (const auto found = metrics.find(monitor_); found != metrics.end()) return found->second;
  std::string names;
  for (const auto& metric : metrics) names += (names.empty() ? "" : ", ") + metric.first;
  throw ValueError(name_,
                   detail::concat("there is no metric '", monitor_, "' to watch; there ", names.empty() ? "are none" : "are: ", names));
}

bool BestValue::improves(double value) {
  const double sign = mode_ == Mode::min ? -1 : 1;
  // An infinite best value has no share to speak of.
  const double margin = kind_ == Threshold::absolute || std::isinf(best_) ? threshold_ : threshold_ * std::abs(best_);
  if (!(sign * value > sign * best_ + margin)) return false;
  best_ = value;
  return true;
}

ReduceLROnPlateau::ReduceLROnPlateau(Optimizer& optimizer, const ReduceLROnPlateauOptions& options)
    : optimizer_(&optimizer),
      options_(options),
      best_("ReduceLROnPlateau", options.monitor, options.mode, options.threshold,
            options.threshold_kind.value_or(options.convention == Convention::keras ? Threshold::absolute : Threshold::relative)) {
  TL_CHECK(options.factor > 0 && options.factor < 1, ValueError, "ReduceLROnPlateau", "factor must be in (0, 1), it is ", options.factor);
  TL_CHECK(options.patience >= 0 && options.cooldown >= 0 && options.min_lr >= 0, ValueError, "ReduceLROnPlateau",
           "patience, cooldown and min_lr must not be negative, they are ", options.patience, ", ", options.cooldown, " and ",
           options.min_lr);
}

bool ReduceLROnPlateau::reduce() {
  bool reduced = false;
  for (std::size_t g = 0; g < optimizer_->group_count(); ++g) {
    const double lr = optimizer_->lr(g), lower = std::max(lr * options_.factor, options_.min_lr);
    if (lower >= lr) continue;
    optimizer_->set_lr(g, lower);
    reduced = true;
  }
  return reduced;
}

bool ReduceLROnPlateau::step(const Metrics& metrics) {
  const double value = best_.pick(metrics);
  const bool keras = options_.convention == Convention::keras;
  // Keras counts the last epoch of a cooldown again.
  const bool counts = cooling_ == 0 || (--cooling_ == 0 && keras);
  if (best_.improves(value)) bad_epochs_ = 0;
  else if (counts) ++bad_epochs_;
  if (bad_epochs_ == 0 || bad_epochs_ < options_.patience + (keras ? 0 : 1)) return false;
  bad_epochs_ = 0;
  cooling_ = options_.cooldown;
  return reduce();
}

StateDict ReduceLROnPlateau::state_dict() const {
  return {{"best", state_number(best_.best())}, {"bad_epochs", state_number(bad_epochs_)}, {"cooling", state_number(cooling_)}};
}

void ReduceLROnPlateau::load_state_dict(const StateDict& dict) {
  StateReader reader("ReduceLROnPlateau", dict);
  double best = 0;
  std::int64_t bad_epochs = 0, cooling = 0;
  reader.take_number("best", best);
  reader.take_number("bad_epochs", bad_epochs);
  reader.take_number("cooling", cooling);
  reader.finish();
  best_.set_best(best);
  bad_epochs_ = bad_epochs;
  cooling_ = cooling;
}

EarlyStopping::EarlyStopping(const EarlyStoppingOptions& options)
    : options_(options), best_("EarlyStopping", options.monitor, options.mode, options.min_delta, Threshold::absolute) {
  TL_CHECK(options.patience >= 0, ValueError, "EarlyStopping", "patience must not be negative, it is ", options.patience);
}

bool EarlyStopping::step(const Metrics& metrics) {
  const double value = best_.pick(metrics);
  ++epoch_;
  if (best_.improves(value)) best_epoch_ = epoch_;
  const std::int64_t bad = epoch_ - best_epoch_;
  return bad > 0 && bad >= options_.patience;
}

StateDict EarlyStopping::state_dict() const {
  return {{"best", state_number(best_.best())}, {"epoch", state_number(epoch_)}, {"best_epoch", state_number(best_epoch_)}};
}

void EarlyStopping::load_state_dict(const StateDict& dict) {
  StateReader reader("EarlyStopping", dict);
  double best = 0;
  std::int64_t epoch = 0, best_epoch = 0;
  reader.take_number("best", best);
  reader.take_number("epoch", epoch);
  reader.take_number("best_epoch", best_epoch);
  reader.finish();
  best_.set_best(best);
  epoch_ = epoch;
  best_epoch_ = best_epoch;
}

}  // namespace tensorlite::optim
