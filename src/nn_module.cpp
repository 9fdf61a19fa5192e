// Out-of-line L4: the module tree: registration, walks, modes, moving between devices, state dictionaries.
#include <tensorlite/nn/module.hpp>

#include <algorithm>
#include <set>

namespace tensorlite {

detail::ModuleLink::ModuleLink(std::string child_name, std::shared_ptr<ModuleState> child)
    : name(std::move(child_name)), state(std::move(child)) {
  ++state->parents;
}
detail::ModuleLink::~ModuleLink() {
  if (state) --state->parents;
}

namespace nn {

using State = detail::ModuleState;
using StatePtr = std::shared_ptr<State>;

namespace {

/// Calls visit(dotted name, state) for a module and all below it, each once, parents first.
template <class Visit> void walk(const StatePtr& state, const std::string& name, std::set<const State*>& seen, const Visit& visit) {
  if (!seen.insert(state.get()).second) return;
  visit(name, state);
  for (const detail::ModuleLink& child : state->children)
    walk(child.state, name.empty() ? child.name : name + "." + child.name, seen, visit);
}
template <class Visit> void walk(const StatePtr& root, const Visit& visit) {
  std::set<const State*> seen;
  walk(root, "", seen, visit);
}

/// The slots of one member (parameters or buffers) of all states, each tensor once.
std::vector<std::pair<std::string, Tensor*>> slots(const StatePtr& root, NamedTensorList State::*member) {
  std::vector<std::pair<std::string, Tensor*>> found;
  std::set<const void*> seen;
  walk(root, [&](const std::string& prefix, const StatePtr& state) {
    for (auto& [name, tensor] : (*state).*member)
      if (tensor.defined() && seen.insert(tensor.impl()).second) found.emplace_back(prefix.empty() ? name : prefix + "." + name, &tensor);
  });
  return found;
}

NamedTensorList named(const StatePtr& root, NamedTensorList State::*member) {
  NamedTensorList list;
  for (auto& [name, tensor] : slots(root, member)) list.emplace_back(std::move(name), *tensor);
  return list;
}

std::vector<Tensor> tensors(const StatePtr& root, NamedTensorList State::*member) {
  std::vector<Tensor> list;
  for (const auto& slot : slots(root, member)) list.push_back(*slot.second);
  return list;
}

Tensor& find(const StatePtr& root, NamedTensorList State::*member, const char* what, std::string_view wanted) {
  State* state = root.get();
  std::string_view rest = wanted;
  for (std::size_t dot; (dot = rest.find('.')) != rest.npos; rest.remove_prefix(dot + 1)) {
    const std::string_view part = rest.substr(0, dot);
    const auto child = std::find_if(state->children.begin(), state->children.end(), [&](const auto& link) { return link.name == part; });
    TL_CHECK(child != state->children.end(), ValueError, what, "there is no module '", part, "' on the way to '", wanted, "'");
    state = child->state.get();
  }
  for (auto& [name, tensor] : state->*member)
    if (name == rest) return tensor;
  throw ValueError(what, detail::concat("there is none of the name '", wanted, "' in this ", root->kind));
}

/// All handles of `tensor` see `source`'s elements from now on.
void replace_elements(Tensor& tensor, const Tensor& source) {
  if (source.impl() == tensor.impl()) return;
  detail::TensorImpl& impl = *tensor.impl();
  impl.storage = source.impl()->storage;
  impl.view = source.raw();
  impl.is_view = source.impl()->is_view;
}

/// Replaces every parameter, buffer and gradient by convert(it).
template <class Convert> void convert_all(const StatePtr& root, const Convert& convert) {
  NoGradGuard guard;
  for (auto member : {&State::parameters, &State::buffers})
    for (auto& slot : slots(root, member)) {
      Tensor& tensor = *slot.second;
      const Tensor gradient = tensor.grad();
      replace_elements(tensor, convert(tensor));
      if (gradient.defined()) tensor.set_grad(convert(gradient));
    }
}

void append_names(std::string& text, const char* what, const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 12;
  if (names.empty()) return;
  text += detail::concat(text.empty() ? "" : "; ", names.size(), " ", what, ": ");
  for (std::size_t i = 0; i < std::min(names.size(), kMost); ++i) text += (i ? ", " : "") + names[i];
  if (names.size() > kMost) text += detail::concat(" and ", names.size() - kMost, " more");
}

}  // namespace

// ----------------------------------------------------------------------------------------------------------- copies and calls

Module::Module(std::string kind) : state_(std::make_shared<State>()) { state_->kind = std::move(kind); }

Module& Module::operator=(Module&& other) noexcept {
  if (this == &other) return *this;
  if (state_ && state_->parents > 0 && other.state_) {
    // A parent's list points to this state: it takes the contents.
    const int parents = state_->parents;
    *state_ = std::move(*other.state_);
    state_->parents = parents;
    other.state_.reset();
  } else {
    // The members are assigned next. They must be in no list any more, so that they take over the states that the new list points to.
    if (state_) state_->children.clear();
    state_ = std::move(other.state_);
  }
  return *this;
}

Tensor Module::forward(const Tensor& x) { return std::as_const(*this).forward(x); }
Tensor Module::forward(const Tensor&) const {
  throw NotImplementedError(
      "forward", detail::concat("this ", kind(), " has none: declare `Tensor forward(const Tensor& x)` in the struct (const or not); ",
                                "what named_modules() gives cannot be called"));
}

void Module::call_hooks(const Tensor& input, const Tensor& output) const {
  const auto hooks = state().hooks;  // one may remove itself
  for (const auto& hook : hooks) hook.second(*this, input, output);
}

int Module::register_forward_hook(ForwardHook hook) const {
  TL_CHECK(hook, ValueError, "register_forward_hook", "the hook is an empty function");
  state().hooks.emplace_back(state().next_hook, std::move(hook));
  return state().next_hook++;
}
void Module::remove_forward_hook(int id) const {
  std::erase_if(state().hooks, [id](const auto& hook) { return hook.first == id; });
}

void Module::throw_moved() { throw ValueError("Module", "this module was moved from; use the one it was moved to"); }

// --------------------------------------------------------------------------------------------------------------- registration

void Module::check_new_name(const char* op, const std::string& name) const {
  TL_CHECK(!name.empty() && name.find('.') == name.npos, ValueError, op, "'", name, "' is no name: it must not be empty nor have a dot");
  const State& own = state();
  bool taken = false;
  for (const auto* list : {&own.parameters, &own.buffers})
    for (const auto& entry : *list) taken |= entry.first == name;
  for (const detail::ModuleLink& child : own.children) taken |= child.name == name;
  TL_CHECK(!taken, ValueError, op, "the name '", name, "' is taken in this ", own.kind);
}

Tensor Module::register_parameter(const std::string& name, const Tensor& tensor) {
  check_new_name("register_parameter", name);
  Tensor own = tensor.is_leaf() ? tensor : tensor.detach();
  if (own.defined()) own.requires_grad_();
  state().parameters.emplace_back(name, own);
  return own;
}

Tensor Module::register_buffer(const std::string& name, const Tensor& tensor) {
  check_new_name("register_buffer", name);
  const Tensor own = tensor.defined() && tensor.requires_grad() ? tensor.detach() : tensor;
  state().buffers.emplace_back(name, own);
  return own;
}

void Module::add_child(const std::string& name, const Module& child) {
  check_new_name("register_module", name);
  walk(child.shared(), [&](const std::string&, const StatePtr& below) {
    TL_CHECK(below != shared(), ValueError, "register_module", "'", name, "' holds the module it is to be registered in");
  });
  state().children.emplace_back(name, child.shared());
}

// ------------------------------------------------------------------------------------------------------------------- contents

NamedTensorList Module::named_parameters() const { return named(shared(), &State::parameters); }
NamedTensorList Module::named_buffers() const { return named(shared(), &State::buffers); }
std::vector<Tensor> Module::parameters() const { return tensors(shared(), &State::parameters); }
std::vector<Tensor> Module::buffers() const { return tensors(shared(), &State::buffers); }

std::int64_t Module::parameter_count() const {
  std::int64_t count = 0;
  for (const Tensor& p : parameters()) count += p.numel();
  return count;
}

Tensor& Module::parameter(std::string_view name) const { return find(shared(), &State::parameters, "parameter", name); }
Tensor& Module::buffer(std::string_view name) const { return find(shared(), &State::buffers, "buffer", name); }

std::vector<std::pair<std::string, Module>> Module::named_modules() const {
  std::vector<std::pair<std::string, Module>> list;
  walk(shared(), [&](const std::string& name, const StatePtr& found) { list.emplace_back(name, Module(found)); });
  return list;
}

void Module::apply(const std::function<void(Module&)>& visit) const {
  auto all = named_modules();
  for (auto module = all.rbegin(); module != all.rend(); ++module) visit(module->second);
}

// ------------------------------------------------------------------------------------------------------------- mode and place

void Module::set_training(bool enable) const {
  walk(shared(), [enable](const std::string&, const StatePtr& below) { below->training = enable; });
}

void Module::zero_grad() const {
  for (auto& slot : slots(shared(), &State::parameters)) slot.second->set_grad({});
}

void Module::to(Device device) const {
  detail::require_device("to", device);
  convert_all(shared(), [device](const Tensor& t) { return t.to(device); });
}
void Module::to(std::string_view device) const { to(detail::device_named("to", device)); }

void Module::to(DType dtype) const {
  TL_CHECK(is_floating(dtype), DTypeError, "to", "the parameters of a module are floating, not ", dtype);
  convert_all(shared(), [dtype](const Tensor& t) {
    const DeviceScope here(t.device());
    return is_floating(t.dtype()) ? t.to(dtype) : t;
  });
}

// ---------------------------------------------------------------------------------------------------------------------- state

StateDict Module::state_dict() const {
  StateDict dict;
  for (auto member : {&State::parameters, &State::buffers})
    for (const auto& [name, tensor] : slots(shared(), member)) dict.emplace(name, tensor->detach());
  return dict;
}

void Module::load_state_dict(const StateDict& dict, LoadOptions options) const {
  auto own = slots(shared(), &State::parameters);
  for (auto& slot : slots(shared(), &State::buffers)) own.push_back(std::move(slot));
  std::vector<std::string> missing, unexpected, shapes;
  std::set<std::string_view> known;
  for (const auto& [name, tensor] : own) {
    known.insert(name);
    const auto entry = dict.find(name);
    if (entry == dict.end()) missing.push_back(name);
    else if (entry->second.sizes() != tensor->sizes())
      shapes.push_back(detail::concat(name, " is ", entry->second.sizes(), " in the dict and ", tensor->sizes(), " in the module"));
  }
  for (const auto& entry : dict)
    if (!known.contains(entry.first)) unexpected.push_back(entry.first);
  std::string problems;
  if (!options.allow_missing) append_names(problems, "missing", missing);
  if (!options.allow_unexpected) append_names(problems, "unexpected", unexpected);
  append_names(problems, "of another shape", shapes);
  TL_CHECK(problems.empty(), ValueError, "load_state_dict", "the dict does not fit this ", kind(), ": ", problems);
  NoGradGuard guard;
  for (const auto& [name, tensor] : own)
    if (const auto entry = dict.find(name); entry != dict.end()) tensor->copy_(entry->second);
}

}  // namespace nn
}  // namespace tensorlite
