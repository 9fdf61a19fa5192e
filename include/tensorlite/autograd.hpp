// L2: reverse-mode differentiation. record() ties an op's result to its inputs; backward() and grad() walk the ties; Function is for users.
//
// How an op records itself: after its kernel has run it calls
//   return record("Mul", out, {a, b}, {a, b}, [](const BackwardContext& c, const Tensor& g) -> Gradients {
//     return {g * c.saved(1), g * c.saved(0)};
//   });
// i.e. name, result, inputs, tensors saved for backward, and a function from the result's gradient to one gradient per input (an undefined
// tensor: none). The function may capture trivially copyable values only (Dims, options, numbers); tensors go through `saved`.
// The engine sums a gradient over the axes that broadcasting added, casts it to the input's dtype and moves it to the input's device, so an
// op's gradient need not.
#pragma once

#include <tensorlite/tensor.hpp>

#include <cstring>

namespace tensorlite {

using Gradients = std::vector<Tensor>;

// ---------------------------------------------------------------------------------------------------------------- grad mode

/// Nothing is recorded in this thread while it lives.
class NoGradGuard {
 public:
  NoGradGuard() : saved_(std::exchange(detail::thread_state().grad_enabled, false)) {}
  ~NoGradGuard() { detail::thread_state().grad_enabled = saved_; }
  NoGradGuard(const NoGradGuard&) = delete;
  NoGradGuard& operator=(const NoGradGuard&) = delete;

 private:
  bool saved_;
};

/// Recording again, inside a NoGradGuard.
class EnableGradGuard {
 public:
  EnableGradGuard() : saved_(std::exchange(detail::thread_state().grad_enabled, true)) {}
  ~EnableGradGuard() { detail::thread_state().grad_enabled = saved_; }
  EnableGradGuard(const EnableGradGuard&) = delete;
  EnableGradGuard& operator=(const EnableGradGuard&) = delete;

 private:
  bool saved_;
};

inline bool is_grad_enabled() { return detail::thread_state().grad_enabled; }

// -------------------------------------------------------------------------------------------------------------------- graph

class BackwardContext;

namespace detail {

/// A tensor by reference in an argument list; avoids copying handles into std::initializer_list.
class TensorRef {
 public:
  TensorRef(const Tensor& tensor) : tensor_(&tensor) {}
  const Tensor& get() const { return *tensor_; }

 private:
  const Tensor* tensor_;
};
using TensorRefs = std::span<const TensorRef>;

/// Where a gradient goes: an output of a node, or a leaf; neither when the input needs none.
struct Edge {
  Ref<Node> node;
  Ref<TensorImpl> leaf;
  std::uint32_t output = 0;
  Dims sizes;  ///< of the input
  bool needed() const { return node || leaf; }
};

/// A tensor kept for backward, with the version its storage had.
struct SavedTensor {
  Ref<TensorImpl> impl;
  std::uint32_t version = 0;
  std::int32_t own_output = -1;  ///< >= 0: the node's own result, kept without its node so that no cycle arises
};

/// What a gradient for an output must look like.
struct OutputInfo {
  Dims sizes;
  DType dtype = DType::float32;
};

/// A list whose first N elements need no memory of their own: most ops have few inputs and one output.
template <class T, std::size_t N> class ShortList {
 public:
  /// A new entry, to be filled in place.
  T& grow() { return size_++ < N ? first_[size_ - 1] : rest_.emplace_back(); }
  std::size_t size() const { return size_; }
  const T& operator[](std::size_t i) const { return i < N ? first_[i] : rest_[i - N]; }
  void clear() { *this = ShortList(); }

 private:
  std::array<T, N> first_;
  std::vector<T> rest_;
  std::size_t size_ = 0;
};

/// A recorded op.
class Node {
 public:
  static constexpr std::size_t kPayload = 256;
  using Invoke = Gradients (*)(const BackwardContext&, std::span<const Tensor>);

  std::atomic<int> refs{1};
  std::uint64_t sequence = 0;  ///< grows with creation: every node is younger than the nodes of its inputs
  const char* op = "";
  Device device;
  bool released = false;  ///< saved tensors were given up by a backward without retain_graph
  Invoke invoke = nullptr;
  ShortList<Edge, 2> edges;
  ShortList<SavedTensor, 2> saved;
  ShortList<OutputInfo, 1> outputs;
  std::vector<std::pair<std::uint32_t, std::shared_ptr<Tensor>>> retained;  ///< retain_grad()
  std::shared_ptr<void> user;                                               ///< a Function's own state
  alignas(16) std::byte payload[kPayload];
};

/// True when grad mode is on and an input requires a gradient.
TL_API bool must_record(const char* op, TensorRefs inputs);
/// Makes the node, ties the outputs to it. The caller has checked must_record.
TL_API Node& make_node(const char* op, std::span<Tensor*> outputs, TensorRefs inputs, TensorRefs saved);

}  // namespace detail

/// What a gradient function may ask of the op it belongs to.
class BackwardContext {
 public:
  explicit BackwardContext(const detail::Node& node) : node_(node) {}
  /// The i-th saved tensor. Throws AutogradError when it was changed in place since.
  TL_API Tensor saved(int i) const;
  /// Does the i-th input need a gradient?
  bool needs(int i) const { return node_.edges[static_cast<std::size_t>(i)].needed(); }
  /// Is the gradient itself being recorded (create_graph)? Then a fused kernel without a gradient of its own will not do.
  bool recording() const { return is_grad_enabled(); }
  const detail::Node& node() const { return node_; }

 private:
  const detail::Node& node_;
};

namespace detail {

/// The general form: several outputs; `gradient(context, span of the outputs' gradients)`, where an undefined gradient means zero.
template <class F> void record_outputs(const char* op, std::span<Tensor*> outputs, TensorRefs inputs, TensorRefs saved, F gradient) {
  static_assert(std::is_trivially_copyable_v<F> && sizeof(F) <= Node::kPayload, "capture Dims, options and numbers only; save tensors");
  if (!must_record(op, inputs)) return;
  Node& node = make_node(op, outputs, inputs, saved);
  ::new (static_cast<void*>(node.payload)) F(gradient);
  node.invoke = [](const BackwardContext& context, std::span<const Tensor> grads) -> Gradients {
    return (*std::launder(reinterpret_cast<const F*>(context.node().payload)))(context, grads);
  };
}

/// One output. Returns it.
template <class F> Tensor record(const char* op, Tensor out, TensorRefs inputs, TensorRefs saved, F gradient) {
  Tensor* outputs[] = {&out};
  record_outputs(op, outputs, inputs, saved,
                 [gradient](const BackwardContext& context, std::span<const Tensor> grads) { return gradient(context, grads[0]); });
  return out;
}
template <class F>
Tensor record(const char* op, Tensor out, std::initializer_list<TensorRef> inputs, std::initializer_list<TensorRef> saved, F gradient) {
  return record(op, std::move(out), TensorRefs(inputs.begin(), inputs.size()), TensorRefs(saved.begin(), saved.size()), gradient);
}

/// In-place ops that must be recorded compute out of place and then call this: the bytes are copied, the graph is re-tied.
/// Throws AutogradError for a leaf that requires a gradient and for a view.
TL_API void assign_recorded(const char* op, Tensor& self, const Tensor& result);
/// What every in-place op asks first: is the write to be recorded? Throws AutogradError when self is a leaf that requires a gradient and
/// recording is on, ValueError when self is expanded: one write would be seen in many elements.
TL_API bool records_inplace(const char* op, const Tensor& self, TensorRefs others);

}  // namespace detail

// -------------------------------------------------------------------------------------------------------- backward and grad

/// Adds d(sum of outputs * output_grads)/d(leaf) to every leaf's grad(). An undefined output gradient is 1 for a single element.
/// Throws AutogradError: nothing recorded, graph already released, a saved tensor changed in place, an op without a gradient.
TL_API void backward(const std::vector<Tensor>& outputs, const std::vector<Tensor>& output_grads = {}, BackwardOptions options = {});

/// d(sum of outputs * output_grads)/d(inputs), leaving every grad() alone. An input that the outputs do not depend on gets an undefined
/// tensor.
TL_API std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                                const std::vector<Tensor>& output_grads = {}, BackwardOptions options = {});

// ---------------------------------------------------------------------------------------------------------------- Function

/// State that a user's Function hands from forward to backward.
class FunctionContext {
 public:
  void save_for_backward(std::vector<Tensor> tensors) { to_save_ = std::move(tensors); }
  /// The saved tensors. Throws AutogradError when one was changed in place since.
  std::vector<Tensor> saved_tensors() const {
    std::vector<Tensor> out;
    for (std::size_t i = 0; i < to_save_.size(); ++i) out.push_back(context_->saved(static_cast<int>(i)));
    return out;
  }
  bool needs(int input) const { return context_->needs(input); }

 private:
  template <class Derived> friend class Function;
  std::vector<Tensor> to_save_;
  const BackwardContext* context_ = nullptr;
};

/// A differentiable operation of the user's own:
///   struct Cube : tl::Function<Cube> {
///     static Tensor forward(FunctionContext& c, const Tensor& x) { c.save_for_backward({x}); return x * x * x; }
///     static Gradients backward(FunctionContext& c, const Tensor& g) { auto x = c.saved_tensors()[0]; return {g * 3.0 * x * x}; }
///   };
///   auto y = Cube::apply(x);
/// forward runs unrecorded; backward returns one gradient per input tensor.
template <class Derived> class Function {
 public:
  template <class... Inputs> static Tensor apply(const Inputs&... inputs) {
    auto context = std::make_shared<FunctionContext>();
    Tensor out;
    {
      NoGradGuard guard;
      out = Derived::forward(*context, inputs...);
    }
    const detail::TensorRef refs[] = {detail::TensorRef(inputs)...};
    if (!detail::must_record("Function", refs)) return out;
    for (const detail::TensorRef& input : refs)  // an input handed through must not be re-tied
      if (input.get().impl() == out.impl()) out = out.detach();
    const std::vector<detail::TensorRef> saved(context->to_save_.begin(), context->to_save_.end());
    Tensor* outputs[] = {&out};
    detail::Node& node = detail::make_node("Function", outputs, refs, saved);
    for (Tensor& t : context->to_save_) t = Tensor();  // the node holds them now; only their number is still needed
    node.user = context;
    node.invoke = [](const BackwardContext& c, std::span<const Tensor> grads) -> Gradients {
      FunctionContext view = *static_cast<FunctionContext*>(c.node().user.get());
      view.context_ = &c;
      return Derived::backward(view, grads[0]);
    };
    return out;
  }
};

// ---------------------------------------------------------------------------------------------------------------- gradcheck

struct GradcheckOptions {
  double eps = 1e-6;
  double atol = 1e-5;
  double rtol = 1e-3;
};
struct GradcheckResult {
  bool ok = true;
  std::string message;  ///< input, element, analytic and numeric value of the first difference
  explicit operator bool() const { return ok; }
};
using GradcheckFunction = std::function<Tensor(const std::vector<Tensor>&)>;

/// Compares backward with central differences for every element of every input that requires a gradient; float64 inputs.
TL_API GradcheckResult gradcheck(const GradcheckFunction& function, const std::vector<Tensor>& inputs, GradcheckOptions options = {});
/// The same for the gradient's own gradient (double backward).
TL_API GradcheckResult gradgradcheck(const GradcheckFunction& function, const std::vector<Tensor>& inputs, GradcheckOptions options = {});

}  // namespace tensorlite
