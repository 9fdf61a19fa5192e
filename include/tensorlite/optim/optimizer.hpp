// L4: optimizers. step() updates every parameter that has a gradient, all of a device and dtype in one kernel call.
//
//   optim::Adam optimizer(net.named_parameters(), {.lr = 1e-3});
//   for (...) {
//     optimizer.zero_grad();
//     cross_entropy(net(images), labels).backward();
//     optimizer.step();
//   }
#pragma once

#include <tensorlite/nn/module.hpp>

#include <array>

namespace tensorlite::optim {

/// Whose formulas and defaults. Keras's: Adam adds eps to the root before bias correction and amsgrad takes the maximum of uncorrected
/// squares; SGD and RMSprop keep the learning rate in the momentum; weight decay shrinks the weights themselves by lr * weight_decay.
enum class Convention : std::uint8_t { pytorch, keras };

struct SGDOptions {
  double lr = 0.01;
  double momentum = 0;
  double dampening = 0;  ///< of the gradient that enters the momentum
  bool nesterov = false;
  double weight_decay = 0;
  bool maximize = false;
  Convention convention = Convention::pytorch;
};
struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  std::optional<double> eps = {};  ///< default 1e-8, Keras 1e-7
  double weight_decay = 0;
  bool amsgrad = false;
  bool maximize = false;
  Convention convention = Convention::pytorch;
};
/// Adam whose weight decay shrinks the weights themselves.
struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  std::optional<double> eps = {};  ///< default 1e-8, Keras 1e-7
  double weight_decay = 0.01;
  bool amsgrad = false;
  bool maximize = false;
  Convention convention = Convention::pytorch;
};
struct RMSpropOptions {
  std::optional<double> lr = {};     ///< default 0.01, Keras 0.001
  std::optional<double> alpha = {};  ///< Keras's rho; default 0.99, Keras 0.9
  std::optional<double> eps = {};    ///< default 1e-8, Keras 1e-7
  double momentum = 0;
  bool centered = false;  ///< divide by the standard deviation of the gradient
  double weight_decay = 0;
  bool maximize = false;
  Convention convention = Convention::pytorch;
};
struct AdadeltaOptions {
  double lr = 1;
  std::optional<double> rho = {};  ///< default 0.9, Keras 0.95
  std::optional<double> eps = {};  ///< default 1e-6, Keras 1e-7
  double weight_decay = 0;
  bool maximize = false;
  Convention convention = Convention::pytorch;
};

/// Parameters that share hyperparameters: `optim::Adam({{features.named_parameters(), {.lr = 1e-4}}, {head.named_parameters(), {}}})`.
template <class Options> struct Group {
  NamedTensorList parameters;
  Options options = {};
};

struct StepOptions {
  double grad_scale = 1;  ///< multiplies every gradient on the way in (1 / loss scale)
};

class TL_API Optimizer {
 public:
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer() = default;

  /// Updates the parameters that have a gradient and leaves the others, and all gradients, as they are. In a captured step the options
  /// stay as they were when it was recorded; learning rates and counts of steps are those of each run. Throws ShapeError.
  void step(const StepOptions& options = {});
  /// Drops every gradient.
  void zero_grad();

  std::size_t group_count() const { return groups_.size(); }
  double lr(std::size_t group = 0) const { return at(group).params.lr; }
  void set_lr(double lr);                     ///< of all groups; throws ValueError unless finite and not negative
  void set_lr(std::size_t group, double lr);  ///< of one
  std::vector<Tensor> parameters() const;

  /// Learning rates and what the optimizer remembers of each parameter, under its name (a number where it has none). The tensors share the
  /// optimizer's memory. Other hyperparameters belong to the program.
  StateDict state_dict() const;
  /// Throws ValueError listing every entry that is missing, unexpected or of another shape; then nothing has changed. What is remembered
  /// keeps its memory, so that a captured step goes on with what was loaded.
  void load_state_dict(const StateDict& dict);

 protected:
  /// One per group, checked and complete.
  struct GroupSetup {
    NamedTensorList parameters;
    OptimizerParams params;
  };
  Optimizer(const char* name, OptimizerKind kind, std::vector<GroupSetup> groups);

 private:
  static constexpr std::size_t kMaxStates = 3;
  struct Parameter {
    std::string name;
    Tensor tensor;
    std::int64_t step = 0;
    std::array<Tensor, kMaxStates> states = {};
  };
  struct ParameterGroup {
    OptimizerParams params;
    std::vector<Parameter> parameters;
  };
  struct Batch;
  class RecordedStep;
  const ParameterGroup& at(std::size_t group) const;
  void check_gradients() const;
  void add_to_batch(std::vector<Batch>& batches, const ParameterGroup& group, Parameter& parameter) const;
  void prepare_states(const ParameterGroup& group, Parameter& parameter) const;
  void run(const Batch& batch, std::size_t group, double grad_scale);
  static void adopt_states(const Parameter& old, Parameter& loaded);

  const char* name_;
  OptimizerKind kind_;
  std::vector<ParameterGroup> groups_;
};

#define TL_OPTIMIZER(Name)                                                                   \
  class TL_API Name : public Optimizer {                                                     \
   public:                                                                                   \
    explicit Name(const NamedTensorList& parameters, const Name##Options& options = {});     \
    explicit Name(const std::vector<Tensor>& parameters, const Name##Options& options = {}); \
    explicit Name(const std::vector<Group<Name##Options>>& groups);                          \
  }
/// v = momentum * v + (1 - dampening) * g (first step: g), w -= lr * v; with nesterov w -= lr * (g + momentum * v).
/// Throws ValueError for a hyperparameter out of range, a parameter given twice or not floating; so do the others.
TL_OPTIMIZER(SGD);
/// Source: Kingma and Ba 2015; amsgrad Reddi et al. 2018.
TL_OPTIMIZER(Adam);
/// Source: Loshchilov and Hutter 2019.
TL_OPTIMIZER(AdamW);
/// Source: Hinton, lecture 6e; centered Graves 2013.
TL_OPTIMIZER(RMSprop);
/// Source: Zeiler 2012.
TL_OPTIMIZER(Adadelta);
#undef TL_OPTIMIZER

/// Scales the gradients so that their joint 2-norm is at most `max_norm`; the norm before. A norm that is not finite scales nothing and
/// comes back as it is. Throws ValueError unless max_norm is positive.
TL_API double clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm);
/// Clamps every gradient's elements to [-limit, limit].
TL_API void clip_grad_value_(const std::vector<Tensor>& parameters, double limit);

}  // namespace tensorlite::optim
