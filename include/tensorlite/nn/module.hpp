// L4: the module tree. A network is a struct that holds its layers as members and registers them by name:
//
//   struct Net : nn::Module {
//     nn::Conv2d conv{1, 32, 3, {.activation = Activation::relu}};
//     nn::Linear fc{26 * 26 * 32, 10};
//     Net() {
//       register_module("conv", conv);
//       register_module("fc", fc);
//     }
//     Tensor forward(const Tensor& x) { return fc(flatten(conv(x), 1)); }
//   };
//   Net net;
//   Tensor y = net(x);
//
// A module owns its parameters and can be moved, not copied: members stay registered wherever the network moves. Assigning to a registered
// member replaces that layer in the tree: `net.fc = nn::Linear{128, 20}`. For a second network with the same values build one and load:
// `Net other; other.load_state_dict(net.state_dict());`.
#pragma once

#include <tensorlite/ops/loss.hpp>
#include <tensorlite/ops/pool.hpp>
#include <tensorlite/ops/random.hpp>

#include <map>

namespace tensorlite {

/// Names and tensors in the order of registration.
using NamedTensorList = std::vector<std::pair<std::string, Tensor>>;
/// Names and tensors as checkpoints hold them (io.hpp saves and loads this type).
using StateDict = std::map<std::string, Tensor>;

namespace nn {
class Module;
/// Called after a module's forward with its input and result.
using ForwardHook = std::function<void(const Module& module, const Tensor& input, const Tensor& output)>;
}  // namespace nn

namespace detail {
struct ModuleState;
/// A child in its parent's list; the child's state counts the lists it is in.
class ModuleLink {
 public:
  ModuleLink(std::string child_name, std::shared_ptr<ModuleState> child);
  ModuleLink(ModuleLink&&) noexcept = default;
  ~ModuleLink();
  std::string name;
  std::shared_ptr<ModuleState> state;
};
/// What a module object points to, so that parents still see it when the object has moved.
struct ModuleState {
  std::string kind;
  NamedTensorList parameters, buffers;  ///< an undefined tensor: an optional one that is not there
  std::vector<ModuleLink> children;
  std::vector<std::pair<int, nn::ForwardHook>> hooks;
  int next_hook = 0;
  bool training = true;
  int parents = 0;
};
}  // namespace detail

namespace nn {

struct LoadOptions {
  bool allow_missing = false;     ///< entries that the module has and the dict lacks keep their values
  bool allow_unexpected = false;  ///< entries that only the dict has are ignored
};

class TL_API Module {
 public:
  /// `kind` is what summary() prints ("Conv2d").
  explicit Module(std::string kind = "Module");
  Module(Module&& other) noexcept = default;
  Module& operator=(Module&& other) noexcept;
  virtual ~Module() = default;

  /// What the module computes: a network declares one of these two. Throws NotImplementedError when it declared neither.
  virtual Tensor forward(const Tensor& x);
  virtual Tensor forward(const Tensor& x) const;
  /// forward(), then the hooks.
  Tensor operator()(const Tensor& x) { return after_forward(x, forward(x)); }
  Tensor operator()(const Tensor& x) const { return after_forward(x, forward(x)); }

  // ----------------------------------------------------------------------------------------------------------------- registration
  // Names are not empty, have no dot and are unique in their module. Throws ValueError.

  /// Makes `tensor` a parameter: it gets requires_grad. The handle that comes back shares its elements: change them in place.
  Tensor register_parameter(const std::string& name, const Tensor& tensor);
  /// A tensor that is saved and moved with the module but not trained.
  Tensor register_buffer(const std::string& name, const Tensor& tensor);
  /// A member: `register_module("conv1", conv1)`.
  template <class M> void register_module(const std::string& name, M& module) { add_child(name, module); }
  /// A new one, to be kept: `nn::Linear fc = register_module("fc", nn::Linear{128, 10})`.
  template <class M>
  requires(!std::is_lvalue_reference_v<M>) M register_module(const std::string& name, M&& module) {
    add_child(name, module);
    return std::move(module);
  }

  // ----------------------------------------------------------------------------------------------------------------------- contents
  /// Of this module and all below it, each tensor once; dotted names ("block1.conv.weight").
  NamedTensorList named_parameters() const;
  NamedTensorList named_buffers() const;
  std::vector<Tensor> parameters() const;
  std::vector<Tensor> buffers() const;
  std::int64_t parameter_count() const;  ///< elements of all parameters
  /// The one of this dotted name; assigning to it replaces it. Throws ValueError.
  Tensor& parameter(std::string_view name) const;
  Tensor& buffer(std::string_view name) const;
  /// This module ("") and all below it, each once, parents first. What comes back gives access to parameters and mode; its forward() cannot
  /// be called.
  std::vector<std::pair<std::string, Module>> named_modules() const;
  /// Calls `visit` with every module below this one, children first, then with this one.
  void apply(const std::function<void(Module&)>& visit) const;
  const std::string& kind() const { return state().kind; }

  // ----------------------------------------------------------------------------------------------------------------- mode and place
  void train() const { set_training(true); }
  void eval() const { set_training(false); }
  bool is_training() const { return state().training; }
  /// Drops every parameter's gradient.
  void zero_grad() const;
  /// Moves parameters, buffers and gradients; handles to them, an optimizer's too, see the moved ones.
  void to(Device device) const;
  void to(std::string_view device) const;
  /// Converts the floating ones.
  void to(DType dtype) const;

  // -------------------------------------------------------------------------------------------------------------------- state
  /// Parameters and buffers; the tensors share the module's memory.
  StateDict state_dict() const;
  /// Copies the values in, whatever their dtype and device. Throws ValueError listing every missing name, unexpected name and differing
  /// shape; then nothing has changed.
  void load_state_dict(const StateDict& dict, LoadOptions options = {}) const;

  /// Returns the hook's number, for remove_forward_hook.
  int register_forward_hook(ForwardHook hook) const;
  void remove_forward_hook(int id) const;

 protected:
  detail::ModuleState& state() const { return *shared(); }
  /// The i-th parameter or buffer registered in this very module.
  Tensor& own_parameter(std::size_t i) const { return state().parameters[i].second; }
  Tensor& own_buffer(std::size_t i) const { return state().buffers[i].second; }
  Tensor after_forward(const Tensor& input, Tensor output) const {
    if (!state().hooks.empty()) [[unlikely]]
      call_hooks(input, output);
    return output;
  }

 private:
  const std::shared_ptr<detail::ModuleState>& shared() const {
    if (!state_) [[unlikely]]
      throw_moved();
    return state_;
  }
  explicit Module(std::shared_ptr<detail::ModuleState> state) : state_(std::move(state)) {}
  void add_child(const std::string& name, const Module& child);
  void check_new_name(const char* op, const std::string& name) const;
  void set_training(bool enable) const;
  void call_hooks(const Tensor& input, const Tensor& output) const;
  [[noreturn]] static void throw_moved();

  std::shared_ptr<detail::ModuleState> state_;
};

}  // namespace nn
}  // namespace tensorlite
