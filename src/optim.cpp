// Out-of-line L4: optimizers.
#include "optim_state.hpp"
#include "recording.hpp"

#include <tensorlite/ops/elementwise.hpp>
#include <tensorlite/ops/reduce.hpp>
#include <tensorlite/ops/shape.hpp>

#include <algorithm>
#include <cmath>
#include <set>

namespace tensorlite::optim {

namespace {

/// What the placement log calls a step, and the names of what is remembered per parameter, in the kernel's order.
struct KindInfo {
  const char* op;
  std::array<const char*, 3> states;
};
constexpr KindInfo kKinds[] = {{"ResourceApplyMomentum", {"momentum"}},
                               {"ResourceApplyAdam", {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}},
                               {"ResourceApplyRMSProp", {"square_avg", "momentum", "grad_avg"}},
                               {"ResourceApplyAdadelta", {"square_avg", "acc_delta"}}};
const KindInfo& info(OptimizerKind kind) { return kKinds[static_cast<std::size_t>(kind)]; }

bool uses_state(OptimizerKind kind, const OptimizerParams& p, std::size_t state) {
  switch (kind) {
    case OptimizerKind::sgd: return state == 0 && p.momentum != 0;
    case OptimizerKind::adam: return state < 2 || p.amsgrad;
    case OptimizerKind::rmsprop: return state == 0 || (state == 1 ? p.momentum != 0 : p.centered);
    case OptimizerKind::adadelta: return state < 2;
  }
  return false;
}

/// Small squares vanish in 16 bits, so the states of half parameters are float32.
DType state_dtype(DType dtype) { return is_half(dtype) ? kFloat32 : dtype; }

/// Dense, of this dtype, there; itself when it is already.
Tensor as(const Tensor& t, DType dtype, Device device) {
  if (t.dtype() == dtype && t.device() == device && t.is_contiguous()) return t;
  const DeviceScope there(device);
  return t.to(device).to(dtype).contiguous();
}

}  // namespace

// ------------------------------------------------------------------------------------------------------------------- the step

/// What one kernel call gets.
struct Optimizer::Batch {
  Device device;
  DType dtype;
  std::int64_t step;
  std::vector<Tensor> weights, gradients;         ///< dense
  std::vector<std::pair<Tensor, Tensor>> copies;  ///< a parameter with gaps, and its dense stand-in
  std::array<std::vector<View>, kMaxStates> states;
  std::vector<Parameter*> parameters;
};

/// A recorded call of the kernel.
class Optimizer::RecordedStep : public runtime::RecordedUpdate {
 public:
  RecordedStep(Optimizer& optimizer, std::size_t group, const Batch& batch, double grad_scale)
      : optimizer_(optimizer), group_(group), grad_scale_(grad_scale) {
    for (const Parameter* p : batch.parameters)
      parameters_.push_back({static_cast<std::size_t>(p - optimizer.groups_[group].parameters.data()), memory_of(*p)});
  }
  void check() const override {
    const auto& all = optimizer_.groups_[group_].parameters;
    const std::int64_t step = all[parameters_.front().index].step;
    for (const auto& [index, memory] : parameters_) {
      const Parameter& p = all[index];
      TL_CHECK(memory == memory_of(p), CaptureError, optimizer_.name_, "parameter '", p.name,
               "' or its state lies elsewhere than when the step was captured; capture the step again");
      TL_CHECK(p.step == step, CaptureError, optimizer_.name_, "parameter '", p.name, "' has done ", p.step, " steps, another ", step,
               ", but they were captured together; capture the step again");
    }
  }
  OptimizerParams advance() override {
    ParameterGroup& group = optimizer_.groups_[group_];
    OptimizerParams params = group.params;
    params.grad_scale = grad_scale_;
    for (const auto& [index, memory] : parameters_) {
      params.step = ++group.parameters[index].step;
      detail::bump_version(group.parameters[index].tensor);
    }
    return params;
  }

 private:
  using Memory = std::array<const void*, kMaxStates + 1>;
  struct Place {
    std::size_t index;
    Memory memory;
  };
  static Memory memory_of(const Parameter& p) {
    Memory memory{p.tensor.raw().data};
    for (std::size_t s = 0; s < kMaxStates; ++s) memory[s + 1] = p.states[s].defined() ? p.states[s].raw().data : nullptr;
    return memory;
  }

  Optimizer& optimizer_;
  std::size_t group_;
  double grad_scale_;
  std::vector<Place> parameters_;
};

void Optimizer::prepare_states(const ParameterGroup& group, Parameter& parameter) const {
  const Tensor& w = parameter.tensor;
  const DType dtype = state_dtype(w.dtype());
  for (std::size_t s = 0; s < kMaxStates; ++s) {
    Tensor& state = parameter.states[s];
    if (!uses_state(kind_, group.params, s)) continue;
    const bool there = state.defined() && state.device() == w.device() && state.dtype() == dtype;
    if (!there && runtime::recording())
      runtime::refuse_capture(name_, detail::concat("parameter '", parameter.name, "' has no state '", info(kind_).states[s],
                                                    "' yet, which would be made anew in every run; its first step must be in the warmup"));
    if (!state.defined()) state = zeros(w.sizes(), {.dtype = dtype, .device = w.device()});
    else if (!there) state = as(state, dtype, w.device());  // the module was moved
  }
}

/// Before anything changes.
void Optimizer::check_gradients() const {
  for (const ParameterGroup& group : groups_)
    for (const Parameter& p : group.parameters)
      if (const Tensor gradient = p.tensor.grad(); gradient.defined())
        TL_CHECK(gradient.sizes() == p.tensor.sizes(), ShapeError, name_, "parameter '", p.name, "' has shape ", p.tensor.sizes(),
                 " and a gradient of shape ", gradient.sizes());
}

void Optimizer::add_to_batch(std::vector<Batch>& batches, const ParameterGroup& group, Parameter& parameter) const {
  const Tensor gradient = parameter.tensor.grad();
  if (!gradient.defined()) return;
  Tensor w = parameter.tensor;
  prepare_states(group, parameter);
  const std::int64_t step = parameter.step + 1;
  auto batch = std::find_if(batches.begin(), batches.end(),
                            [&](const Batch& b) { return b.device == w.device() && b.dtype == w.dtype() && b.step == step; });
  if (batch == batches.end()) batch = batches.insert(batches.end(), Batch{w.device(), w.dtype(), step, {}, {}, {}, {}, {}});
  if (!w.is_contiguous()) {
    const Tensor dense = w.clone();
    batch->copies.emplace_back(w, dense);
    w = dense;
  }
  batch->weights.push_back(w);
  batch->parameters.push_back(&parameter);
  batch->gradients.push_back(as(gradient, w.dtype(), w.device()));
  for (std::size_t s = 0; s < kMaxStates; ++s)
    batch->states[s].push_back(uses_state(kind_, group.params, s) ? parameter.states[s].raw() : View());
}

void Optimizer::run(const Batch& batch, std::size_t group, double grad_scale) {
  const auto views = [](const std::vector<Tensor>& tensors) {
    std::vector<View> list;
    for (const Tensor& t : tensors) list.push_back(t.raw());
    return list;
  };
  const std::vector<View> weights = views(batch.weights), gradients = views(batch.gradients);
  std::vector<View> states;
  for (std::size_t s = 0; s < kMaxStates; ++s) states.insert(states.end(), batch.states[s].begin(), batch.states[s].end());
  OptimizerParams params = groups_[group].params;
  params.step = batch.step;
  params.grad_scale = grad_scale;
  const detail::OpPlace place{info(kind_).op, batch.device};
  TL_CALL(place, optimizer_step, kind_, weights, gradients, states, params);
  if (runtime::Recording* recording = runtime::recording())
    recording->updates.push_back(std::make_unique<RecordedStep>(*this, group, batch, grad_scale));
  else
    for (Parameter* p : batch.parameters) p->step = batch.step;
  for (const Tensor& w : batch.weights) detail::bump_version(w);
  for (auto [parameter, dense] : batch.copies) parameter.copy_(dense);
}

void Optimizer::step(const StepOptions& options) {
  NoGradGuard guard;
  check_gradients();
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    std::vector<Batch> batches;
    for (Parameter& parameter : groups_[group].parameters) add_to_batch(batches, groups_[group], parameter);
    for (const Batch& batch : batches) run(batch, group, options.grad_scale);
  }
}

void Optimizer::zero_grad() {
  for (ParameterGroup& group : groups_)
    for (Parameter& parameter : group.parameters) parameter.tensor.set_grad({});
}

// ------------------------------------------------------------------------------------------------------- groups and their rates

Optimizer::Optimizer(const char* name, OptimizerKind kind, std::vector<GroupSetup> groups) : name_(name), kind_(kind) {
  std::set<const void*> tensors;
  std::set<std::string> names;
  for (GroupSetup& setup : groups) {
    ParameterGroup group{setup.params, {}};
    for (auto& [parameter_name, tensor] : setup.parameters) {
      TL_CHECK(tensor.defined() && is_floating(tensor.dtype()) && tensor.is_leaf(), ValueError, name_, "parameter '", parameter_name,
               "' must be a floating tensor that no operation computed");
      TL_CHECK(tensors.insert(tensor.impl()).second, ValueError, name_, "parameter '", parameter_name, "' is given twice");
      TL_CHECK(names.insert(parameter_name).second, ValueError, name_, "two parameters are called '", parameter_name, "'");
      group.parameters.push_back({parameter_name, tensor});
    }
    groups_.push_back(std::move(group));
  }
  TL_CHECK(!tensors.empty(), ValueError, name_, "there are no parameters to optimize");
}

const Optimizer::ParameterGroup& Optimizer::at(std::size_t group) const {
  TL_CHECK(group < groups_.size(), IndexError, name_, "there is no group ", group, ", there are ", groups_.size());
  return groups_[group];
}

void Optimizer::set_lr(std::size_t group, double lr) {
  at(group);
  TL_CHECK(std::isfinite(lr) && lr >= 0, ValueError, name_, "the learning rate must be finite and not negative, it is ", lr);
  groups_[group].params.lr = lr;
}
void Optimizer::set_lr(double lr) {
  for (std::size_t i = 0; i < groups_.size(); ++i) set_lr(i, lr);
}

std::vector<Tensor> Optimizer::parameters() const {
  std::vector<Tensor> all;
  for (const ParameterGroup& group : groups_)
    for (const Parameter& parameter : group.parameters) all.push_back(parameter.tensor);
  return all;
}

// ---------------------------------------------------------------------------------------------------------------------- state

namespace {
std::string lr_key(std::size_t group) { return detail::concat("group.", group, ".lr"); }
std::string state_key(const std::string& parameter, const char* what) { return "state." + parameter + "." + what; }
}  // namespace

StateDict Optimizer::state_dict() const {
  StateDict dict;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    dict.emplace(lr_key(g), state_number(groups_[g].params.lr));
    for (const Parameter& p : groups_[g].parameters) {
      if (p.step == 0) continue;
      dict.emplace(state_key(p.name, "step"), state_number(p.step));
      for (std::size_t s = 0; s < kMaxStates; ++s)
        if (p.states[s].defined()) dict.emplace(state_key(p.name, info(kind_).states[s]), p.states[s]);
    }
  }
  return dict;
}

void Optimizer::load_state_dict(const StateDict& dict) {
  StateReader reader(name_, dict);
  std::vector<ParameterGroup> loaded = groups_;
  for (std::size_t g = 0; g < loaded.size(); ++g) {
    reader.take_number(lr_key(g), loaded[g].params.lr);
    for (Parameter& p : loaded[g].parameters) {
      p.step = 0;
      p.states = {};
      if (!reader.has(state_key(p.name, "step"))) continue;  // it had no gradient yet
      reader.take_number(state_key(p.name, "step"), p.step);
      for (std::size_t s = 0; s < kMaxStates; ++s)
        if (uses_state(kind_, loaded[g].params, s)) p.states[s] = reader.take(state_key(p.name, info(kind_).states[s]), p.tensor.sizes());
    }
  }
  reader.finish();
  for (std::size_t g = 0; g < loaded.size(); ++g)
    for (std::size_t i = 0; i < loaded[g].parameters.size(); ++i) adopt_states(groups_[g].parameters[i], loaded[g].parameters[i]);
  groups_ = std::move(loaded);
}

void Optimizer::adopt_states(const Parameter& old, Parameter& loaded) {
  const NoGradGuard guard;
  const DType dtype = state_dtype(loaded.tensor.dtype());
  for (std::size_t s = 0; s < kMaxStates; ++s) {
    const Tensor given = loaded.states[s];
    Tensor kept = old.states[s];
    const bool stays = kept.defined() && kept.device() == loaded.tensor.device() && kept.dtype() == dtype;
    if (stays) loaded.states[s] = given.defined() ? kept.copy_(given) : kept.zero_();
    else if (given.defined()) loaded.states[s] = as(given, dtype, loaded.tensor.device()).clone();
  }
}

// ------------------------------------------------------------------------------------------------------------------- the kinds

namespace {

void check(const char* name, const char* what, double value, double low, double high, const char* range) {
  TL_CHECK(std::isfinite(value) && value >= low && value <= high, ValueError, name, what, " must be ", range, ", it is ", value);
}
void check_below_one(const char* name, const char* what, double value) {
  check(name, what, value, 0, std::nextafter(1.0, 0.0), "in [0, 1)");
}
void check_not_negative(const char* name, const char* what, double value) { check(name, what, value, 0, 1e300, "finite and not negative"); }

template <class Options> OptimizerParams common(const char* name, const Options& options, double lr) {
  check_not_negative(name, "lr", lr);
  check_not_negative(name, "weight_decay", options.weight_decay);
  return {.lr = lr, .weight_decay = options.weight_decay, .maximize = options.maximize, .keras = options.convention == Convention::keras};
}

OptimizerParams complete(const char* name, const SGDOptions& options) {
  OptimizerParams p = common(name, options, options.lr);
  check_not_negative(name, "momentum", options.momentum);
  check_not_negative(name, "dampening", options.dampening);
  TL_CHECK(!options.nesterov || (options.momentum > 0 && options.dampening == 0), ValueError, name,
           "nesterov needs a momentum above 0 and no dampening, they are ", options.momentum, " and ", options.dampening);
  TL_CHECK(!p.keras || options.dampening == 0, ValueError, name, "Keras's convention has no dampening, it is ", options.dampening);
  p.momentum = options.momentum;
  p.dampening = options.dampening;
  p.nesterov = options.nesterov;
  return p;
}

template <class Options> OptimizerParams complete_adam(const char* name, const Options& options) {
  OptimizerParams p = common(name, options, options.lr);
  check_below_one(name, "beta1", options.beta1);
  check_below_one(name, "beta2", options.beta2);
  p.beta1 = options.beta1;
  p.beta2 = options.beta2;
  p.eps = options.eps.value_or(p.keras ? 1e-7 : 1e-8);
  check_not_negative(name, "eps", p.eps);
  p.amsgrad = options.amsgrad;
  return p;
}
OptimizerParams complete(const char* name, const AdamOptions& options) { return complete_adam(name, options); }
OptimizerParams complete(const char* name, const AdamWOptions& options) {
  OptimizerParams p = complete_adam(name, options);
  p.decoupled_decay = true;
  return p;
}

OptimizerParams complete(const char* name, const RMSpropOptions& options) {
  const bool keras = options.convention == Convention::keras;
  OptimizerParams p = common(name, options, options.lr.value_or(keras ? 1e-3 : 1e-2));
  p.beta2 = options.alpha.value_or(keras ? 0.9 : 0.99);
  p.eps = options.eps.value_or(keras ? 1e-7 : 1e-8);
  check_below_one(name, "alpha", p.beta2);
  check_not_negative(name, "eps", p.eps);
  check_not_negative(name, "momentum", options.momentum);
  p.momentum = options.momentum;
  p.centered = options.centered;
  return p;
}

OptimizerParams complete(const char* name, const AdadeltaOptions& options) {
  OptimizerParams p = common(name, options, options.lr);
  p.beta2 = options.rho.value_or(p.keras ? 0.95 : 0.9);
  p.eps = options.eps.value_or(p.keras ? 1e-7 : 1e-6);
  check(name, "rho", p.beta2, 0, 1, "in [0, 1]");
  check_not_negative(name, "eps", p.eps);
  return p;
}

NamedTensorList numbered(const std::vector<Tensor>& tensors) {
  NamedTensorList list;
  for (const Tensor& t : tensors) list.emplace_back(std::to_string(list.size()), t);
  return list;
}

/// From any list of groups to one of the base class's setups.
template <class Setup, class Options> std::vector<Setup> set_up(const char* name, const std::vector<Group<Options>>& groups) {
  std::vector<Setup> list;
  for (const Group<Options>& group : groups) list.push_back({group.parameters, complete(name, group.options)});
  return list;
}

}  // namespace

#define TL_OPTIMIZER(Name, kind)                                                    \
  Name::Name(const std::vector<Group<Name##Options>>& groups)                       \
      : Optimizer(#Name, OptimizerKind::kind, set_up<GroupSetup>(#Name, groups)) {} \
  Name::Name(const NamedTensorList& parameters, const Name##Options& options)       \
      : Name(std::vector<Group<Name##Options>>{{parameters, options}}) {}           \
  Name::Name(const std::vector<Tensor>& parameters, const Name##Options& options) : Name(numbered(parameters), options) {}
TL_OPTIMIZER(SGD, sgd)
TL_OPTIMIZER(Adam, adam)
TL_OPTIMIZER(AdamW, adam)
TL_OPTIMIZER(RMSprop, rmsprop)
TL_OPTIMIZER(Adadelta, adadelta)
#undef TL_OPTIMIZER

// ------------------------------------------------------------------------------------------------------------------- clipping

double clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm) {
  TL_CHECK(max_norm > 0, ValueError, "clip_grad_norm_", "max_norm must be positive, it is ", max_norm);
  NoGradGuard guard;
  std::vector<Tensor> gradients, norms;
  for (const Tensor& p : parameters) {
    const Tensor gradient = p.grad();
    if (!gradient.defined()) continue;
    gradients.push_back(gradient);
    norms.push_back(norm(gradient.to(state_dtype(gradient.dtype()))).to(gradients.front().device()));
  }
  if (gradients.empty()) return 0;
  const double total = norm(stack(norms)).item<double>();
  const double factor = max_norm / (total + 1e-6);
  if (std::isfinite(total) && factor < 1)
    for (Tensor& gradient : gradients) gradient.mul_(factor);
  return total;
}

void clip_grad_value_(const std::vector<Tensor>& parameters, double limit) {
  TL_CHECK(limit > 0, ValueError, "clip_grad_value_", "the limit must be positive, it is ", limit);
  NoGradGuard guard;
  for (const Tensor& p : parameters)
    if (Tensor gradient = p.grad(); gradient.defined()) gradient.clamp_(-limit, limit);
}

}  // namespace tensorlite::optim
