// L4: learning-rate schedules and early stopping. Call step() once after each epoch.
#pragma once

#include <tensorlite/optim/optimizer.hpp>

namespace tensorlite::optim {

/// The rates of all groups as a function of the number of epochs done. The optimizer must outlive it.
class TL_API Scheduler {
 public:
  virtual ~Scheduler() = default;
  void step();
  std::int64_t epoch() const { return epoch_; }
  /// Epochs done and the rates it began with. The optimizer saves its own.
  StateDict state_dict() const;
  /// Throws ValueError: missing, unexpected, of another number of groups.
  void load_state_dict(const StateDict& dict);

 protected:
  Scheduler(const char* name, Optimizer& optimizer);
  /// The rate of a group that began with `base` after `epoch` epochs.
  virtual double rate(double base, std::int64_t epoch) const = 0;

 private:
  const char* name_;
  Optimizer* optimizer_;
  std::vector<double> bases_;
  std::int64_t epoch_ = 0;
};

struct StepLROptions {
  std::int64_t step_size = 1;  ///< epochs between changes
  double gamma = 0.1;
};
/// base * gamma^(epoch / step_size), rounded down.
class TL_API StepLR : public Scheduler {
 public:
  StepLR(Optimizer& optimizer, const StepLROptions& options);

 private:
  double rate(double base, std::int64_t epoch) const override;
  StepLROptions options_;
};

struct ExponentialLROptions {
  double gamma = 0.95;
};
/// base * gamma^epoch.
class TL_API ExponentialLR : public Scheduler {
 public:
  ExponentialLR(Optimizer& optimizer, const ExponentialLROptions& options);

 private:
  double rate(double base, std::int64_t epoch) const override;
  ExponentialLROptions options_;
};

struct CosineLROptions {
  std::int64_t epochs = 1;  ///< of the whole descent
  double min_lr = 0;
};
/// From base down to min_lr along half a cosine; then it stays there.
class TL_API CosineLR : public Scheduler {
 public:
  CosineLR(Optimizer& optimizer, const CosineLROptions& options);

 private:
  double rate(double base, std::int64_t epoch) const override;
  CosineLROptions options_;
};

// ------------------------------------------------------------------------------------------------------------ watching a metric

/// What an epoch gave, by name: {{"loss", 0.05}, {"val_accuracy", 0.99}}.
using Metrics = std::map<std::string, double>;

enum class Mode : std::uint8_t { min, max };
/// relative: better by this share of the best value; absolute: by this much (Keras's min_delta).
enum class Threshold : std::uint8_t { relative, absolute };

/// Is the value of a metric better than all before it? NaN never is.
class TL_API BestValue {
 public:
  BestValue(const char* name, std::string monitor, Mode mode, double threshold, Threshold kind);
  /// Throws ValueError, listing the names there are, when there is no such metric.
  double pick(const Metrics& metrics) const;
  bool improves(double value);
  double best() const { return best_; }
  void set_best(double best) { best_ = best; }

 private:
  const char* name_;
  std::string monitor_;
  Mode mode_;
  double threshold_;
  Threshold kind_;
  double best_;
};

struct ReduceLROnPlateauOptions {
  std::string monitor = "val_loss";
  Mode mode = Mode::min;
  double factor = 0.1;
  std::int64_t patience = 10;  ///< epochs without improvement that are let pass; Keras: that lead to a reduction
  double threshold = 1e-4;
  std::optional<Threshold> threshold_kind = {};  ///< default relative, Keras absolute
  std::int64_t cooldown = 0;                     ///< epochs after a reduction that are not counted
  double min_lr = 0;
  Convention convention = Convention::pytorch;
};
/// Multiplies all rates by `factor` when the metric has stopped improving. The optimizer must outlive it.
class TL_API ReduceLROnPlateau {
 public:
  ReduceLROnPlateau(Optimizer& optimizer, const ReduceLROnPlateauOptions& options);
  /// Returns whether a rate was reduced. Throws ValueError, listing the names there are, when `monitor` is not among the metrics.
  bool step(const Metrics& metrics);
  double best() const { return best_.best(); }
  StateDict state_dict() const;
  void load_state_dict(const StateDict& dict);

 private:
  bool reduce();

  Optimizer* optimizer_;
  ReduceLROnPlateauOptions options_;
  BestValue best_;
  std::int64_t bad_epochs_ = 0, cooling_ = 0;
};

struct EarlyStoppingOptions {
  std::string monitor = "val_loss";
  Mode mode = Mode::min;
  std::int64_t patience = 10;  ///< epochs without improvement after which to stop
  double min_delta = 0;        ///< a smaller improvement is none
};
/// Says when to stop, and which epoch to keep.
///   if (stopping.step(metrics)) break;
///   if (stopping.improved()) io::save_safetensors("best.safetensors", {net.state_dict()});
class TL_API EarlyStopping {
 public:
  explicit EarlyStopping(const EarlyStoppingOptions& options = {});
  /// Returns whether to stop. Throws ValueError, listing the names there are, when `monitor` is not among the metrics.
  bool step(const Metrics& metrics);
  bool improved() const { return epoch_ > 0 && epoch_ == best_epoch_; }  ///< was the last epoch the best so far?
  double best() const { return best_.best(); }
  std::int64_t best_epoch() const { return best_epoch_; }  ///< 1 for the first; 0 before
  StateDict state_dict() const;
  void load_state_dict(const StateDict& dict);

 private:
  EarlyStoppingOptions options_;
  BestValue best_;
  std::int64_t epoch_ = 0, best_epoch_ = 0;
};

}  // namespace tensorlite::optim
