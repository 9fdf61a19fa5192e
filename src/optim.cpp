// Out-of-line L4: optimizers.
#include "optim_state.hpp"

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
  std::vector<std::int64_t*> counters;  ///< of steps, moved when the kernel has run
};

void Optimizer::prepare_states(const ParameterGroup& group, Parameter& parameter) const {
  const Tensor& w = parameter.tensor;
  const DType dtype = state_dtype(w.dtype());
  for (std::size_t s = 0; s < kMaxStates; ++s) {
    Tensor& state = parameter.states[s];
    if (!uses_state(kind_, group.params, s)) continue;
    if (!state.defined()) state = zeros(w.sizes(), {.dtype = dtype, .device = w.device()});
    else if (state.device() != w.device() || state.dtype() != dtype) state = as(state, dtype, w.device());  // the module was moved
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
  batch->counters.push_back(&parameter.step);
  batch->gradients.push_back(as(gradient, w.dtype(), w.device()));
  for (std::size_t s = 0; s < kMaxStates; ++s)
    batch->states[s].push_back(uses_state(kind_, group.params, s) ? parameter.states[s].raw() : View());
}

void Optimizer::run(const Batch& batch, OptimizerParams params) const {
  const auto views = [](const std::vector<Tensor>& tensors) {
    std::vector<View> list;
    for (const Tensor& t : tensors) list.push_back(t.raw());
    return list;
  };
  const std::vector<View> weights = views(batch.weights), gradients = views(batch.gradients);
  std::vector<View> states;
  for (std::size_t s = 0; s < kMaxStates; ++s) states.insert(states.end(), batch.states[s].begin(), batch.states[s].end());
  params.step = batch.step;
  const detail::OpPlace place{info(kind_).op, batch.device};
  TL_CALL(place, optimizer_step, kind_, weights, gradients, states, params);
  for (std::int64_t* counter : batch.counters) *counter = batch.step;
  for (const Tensor& w : batch.weights) detail::bump_version(w);
  for (auto [parameter, dense] : batch.copies) parameter.copy_(dense);
}

void Optimizer::step(const StepOptions& options) {
  NoGradGuard guard;
  check_gradients();
  for (ParameterGroup& group : groups_) {
    std::vector<Batch> batches;
    for (Parameter& parameter : group.parameters) add_to_batch(batches, group, parameter);
    OptimizerParams params = group.params;
    params.grad_scale = options.grad_scale;
    for (const Batch& batch : batches) run(batch, params);
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
        if (uses_state(kind_, loaded[g].params, s))
          if (const Tensor t = reader.take(state_key(p.name, info(kind_).states[s]), p.tensor.sizes()); t.defined())
            p.states[s] = as(t, state_dtype(p.tensor.dtype()), p.tensor.device()).clone();
    }
  }
  reader.finish();
  groups_ = std::move(loaded);
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
