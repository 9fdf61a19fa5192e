// Out-of-line L2: the recorded graph and the backward engine.
#include "recording.hpp"

#include <tensorlite/autograd.hpp>
#include <tensorlite/ops/elementwise.hpp>
#include <tensorlite/ops/reduce.hpp>
#include <tensorlite/ops/shape.hpp>

#include <algorithm>
#include <mutex>
#include <queue>
#include <unordered_map>

namespace tensorlite {
namespace detail {

// -------------------------------------------------------------------------------------------------------------- recording

namespace {
std::atomic<std::uint64_t> next_sequence{1};

AutogradMeta& meta_of(TensorImpl& impl) {
  if (!impl.meta) impl.meta = std::make_unique<AutogradMeta>();
  return *impl.meta;
}

/// Fills a new edge in place: entries just written and then copied as a whole would be waited for.
void connect(Edge& edge, const Tensor& input) {
  const TensorImpl* impl = input.impl();
  if (!impl) return;
  edge.sizes = impl->view.sizes;
  if (!impl->meta) return;
  if (impl->meta->node) {
    edge.node = impl->meta->node;
    edge.output = impl->meta->output;
  } else if (impl->meta->requires_grad) {
    edge.leaf = input.ref();
  }
}

SavedTensor save(const Tensor& tensor, std::span<Tensor*> outputs) {
  if (!tensor.defined()) return {};
  SavedTensor saved{tensor.ref(), tensor.impl()->storage->version.load(std::memory_order_relaxed), -1};
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i]->impl() != tensor.impl()) continue;
    saved.impl = tensor.detach().ref();  // the result itself would own its node, which owns this: a cycle
    saved.own_output = static_cast<std::int32_t>(i);
  }
  return saved;
}

/// A view that was recorded before its storage was changed by a recorded in-place op describes values that are gone.
void check_not_stale(const char* op, const Tensor& input) {
  const TensorImpl* impl = input.impl();
  if (!impl || !impl->meta || !impl->meta->node || !impl->is_view) return;
  TL_CHECK(impl->meta->graph_version == impl->storage->graph_version, AutogradError, op, "an input of shape ", input.sizes(),
           " is a view whose base was changed by a recorded in-place operation; take the view again after the change");
}
}  // namespace

bool must_record(const char* op, TensorRefs inputs) {
  if (!thread_state().grad_enabled) return false;
  bool needed = false;
  for (const TensorRef& input : inputs) {
    if (!input.get().requires_grad()) continue;
    check_not_stale(op, input.get());
    needed = true;
  }
  return needed;
}

Node& make_node(const char* op, std::span<Tensor*> outputs, TensorRefs inputs, TensorRefs saved) {
  Ref<Node> node(new Node);
  node->op = op;
  node->device = outputs[0]->raw().device;
  node->sequence = next_sequence.fetch_add(1, std::memory_order_relaxed);
  for (const TensorRef& input : inputs) connect(node->edges.grow(), input.get());
  for (const TensorRef& tensor : saved) node->saved.grow() = save(tensor.get(), outputs);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& out = *outputs[i];
    OutputInfo& info = node->outputs.grow();
    info.sizes = out.sizes();
    info.dtype = out.dtype();
    if (!is_floating(out.dtype())) continue;  // indices and masks beside a result have no gradient
    AutogradMeta& meta = meta_of(*out.impl());
    meta.node = node;
    meta.output = static_cast<std::uint32_t>(i);
    meta.graph_version = out.impl()->storage->graph_version;
  }
  return *node;
}

/// Destroying a node drops its inputs' nodes, which drop theirs: a list instead of recursion, so that a chain of any length fits any stack.
void destroy(Node* node) {
  thread_local std::vector<Node*>* pending = nullptr;
  if (pending) {
    pending->push_back(node);
    return;
  }
  std::vector<Node*> list{node};
  pending = &list;
  while (!list.empty()) {
    Node* next = list.back();
    list.pop_back();
    delete next;
  }
  pending = nullptr;
}

bool records_inplace(const char* op, const Tensor& self, TensorRefs others) {
  for (int i = 0; i < self.dim(); ++i)
    TL_CHECK(self.strides()[i] != 0 || self.sizes()[i] <= 1, ValueError, op, "a tensor of shape ", self.sizes(),
             " repeats its elements along axis ", i, " (stride 0): it cannot be changed in place; clone() it first");
  if (!thread_state().grad_enabled) return false;
  const bool self_recorded = self.requires_grad();
  const bool recorded = must_record(op, others) || self_recorded;
  if (!recorded) return false;
  TL_CHECK(!(self_recorded && self.is_leaf()), AutogradError, op,
           "a leaf tensor that requires a gradient may not be changed in place while gradients are recorded; put the change under a "
           "NoGradGuard");
  TL_CHECK(!self.impl()->is_view, AutogradError, op, "a recorded in-place change of a view (shape ", self.sizes(),
           ") is not supported; build the value with concatenate, stack or where instead, or clone() first");
  TL_CHECK(is_floating(self.dtype()), AutogradError, op, "a recorded in-place change needs a floating tensor, this one is ", self.dtype());
  return true;
}

void assign_recorded(const char* op, Tensor& self, const Tensor& result) {
  TL_CHECK(result.sizes() == self.sizes(), ShapeError, op, "the result has shape ", result.sizes(), ", which does not fit in place into ",
           self.sizes());
  TL_CALL((OpPlace{op, self.device()}), copy, self.raw(), result.raw());
  bump_version(self);
  Storage& storage = *self.impl()->storage;
  ++storage.graph_version;
  AutogradMeta& meta = meta_of(*self.impl());
  meta.node = result.impl()->meta ? result.impl()->meta->node : Ref<Node>();
  meta.output = result.impl()->meta ? result.impl()->meta->output : 0;
  meta.graph_version = storage.graph_version;
}

}  // namespace detail

// ------------------------------------------------------------------------------------------------------- tensors' own side

Tensor BackwardContext::saved(int i) const {
  using namespace detail;
  const SavedTensor& saved = node_.saved[static_cast<std::size_t>(i)];
  if (!saved.impl) return Tensor();
  const std::uint32_t now = saved.impl->storage->version.load(std::memory_order_relaxed);
  TL_CHECK(now == saved.version, AutogradError, node_.op, "a tensor saved for backward, of shape ", saved.impl->view.sizes,
           ", was modified by an in-place operation since (version ", now, ", expected ", saved.version, "); clone() it before the change");
  Tensor tensor{saved.impl};
  if (saved.own_output < 0) return tensor;
  Tensor own = tensor.detach();
  AutogradMeta& meta = meta_of(*own.impl());
  auto* self = const_cast<Node*>(&node_);
  self->refs.fetch_add(1, std::memory_order_relaxed);
  meta.node = Ref<Node>(self);
  meta.output = static_cast<std::uint32_t>(saved.own_output);
  meta.graph_version = own.impl()->storage->graph_version;
  return own;
}

Tensor& Tensor::requires_grad_(bool enable) {
  TL_CHECK(is_floating(raw().dtype), DTypeError, "requires_grad_", "only floating tensors have gradients, this one is ", dtype());
  TL_CHECK(is_leaf(), AutogradError, "requires_grad_", "the tensor was computed by op ", impl_->meta->node->op, "; detach() it first");
  detail::meta_of(*impl_).requires_grad = enable;
  return *this;
}

void Tensor::set_grad(Tensor gradient) const {
  TL_CHECK(defined(), ValueError, "set_grad", "the tensor is undefined: it was default-constructed and never assigned");
  TL_CHECK(!gradient.defined() || gradient.sizes() == sizes(), ShapeError, "set_grad", "a gradient of shape ", gradient.sizes(),
           " for a tensor of shape ", sizes());
  if (runtime::Recording* recording = runtime::recording()) recording->note(*impl_);
  detail::AutogradMeta& meta = detail::meta_of(*impl_);
  if (!gradient.defined()) meta.grad.reset();
  else meta.grad = std::make_shared<Tensor>(std::move(gradient));
}

void Tensor::retain_grad() const {
  TL_CHECK(requires_grad(), AutogradError, "retain_grad", "the tensor is not recorded: no input of it requires a gradient");
  if (is_leaf()) return;
  detail::AutogradMeta& meta = *impl_->meta;
  if (!meta.grad) meta.grad = std::make_shared<Tensor>();
  meta.node->retained.emplace_back(meta.output, meta.grad);
}

// ------------------------------------------------------------------------------------------------------------------ engine

namespace detail {
namespace {

/// Brings a gradient to the form its input has: summed over broadcast axes, cast, moved.
Tensor conform(const Node& from, Tensor gradient, const Dims& sizes, DType dtype, Device device) {
  if (!(gradient.sizes() == sizes)) gradient = sum_to(gradient, sizes, from.op);
  if (gradient.dtype() != dtype) gradient = gradient.to(dtype);
  if (gradient.device() != device) gradient = gradient.to(device);
  return gradient;
}

/// Is nobody else holding this tensor or its memory?
bool is_exclusive(const Tensor& tensor) {
  return tensor.ref().use_count() == 1 && tensor.impl()->storage.use_count() == 1 && !tensor.impl()->storage->deleter &&
         tensor.is_contiguous();
}

/// In a captured step: a gradient that was there before it is added to in every run.
void note_recorded_leaf(runtime::Recording& recording, TensorImpl& leaf) {
  runtime::RecordedLeaf& noted = recording.note(leaf);
  const Tensor stored = Tensor(noted.leaf).grad();
  if (!stored.defined() || !noted.before.defined() || !stored.shares_storage(noted.before)) return;
  if (is_grad_enabled())
    runtime::refuse_capture("backward", "it would record the sum with a gradient from before the step; drop the gradient first");
  noted.accumulates = true;
}

std::mutex leaf_mutex;

void accumulate_leaf(TensorImpl& leaf, Tensor gradient) {
  const std::lock_guard lock(leaf_mutex);
  if (runtime::Recording* recording = runtime::recording()) [[unlikely]]
    note_recorded_leaf(*recording, leaf);
  AutogradMeta& meta = meta_of(leaf);
  if (!meta.grad) meta.grad = std::make_shared<Tensor>();
  Tensor& stored = *meta.grad;
  if (!stored.defined()) {
    // Two leaves must never share one buffer: what someone else still holds is copied.
    stored = is_exclusive(gradient) ? std::move(gradient) : gradient.clone();
  } else if (is_grad_enabled()) {
    stored = stored + gradient;
  } else {
    stored.add_(gradient);
  }
}

using Buffers = std::vector<Tensor>;  // one gradient per output of a node

void accumulate_buffer(Tensor& buffer, Tensor gradient) {
  if (!buffer.defined()) buffer = std::move(gradient);
  else if (!is_grad_enabled() && is_exclusive(buffer)) buffer.add_(gradient);
  else buffer = buffer + gradient;
}

struct Younger {
  bool operator()(const Node* a, const Node* b) const { return a->sequence < b->sequence; }
};

/// Where grad() collects, instead of leaves' own gradients.
struct Capture {
  std::unordered_map<const TensorImpl*, std::vector<std::size_t>> leaves;
  std::unordered_map<const Node*, std::vector<std::pair<std::uint32_t, std::size_t>>> outputs;
  std::vector<Tensor> results;
};

class Engine {
 public:
  Engine(BackwardOptions options, Capture* capture) : options_(options), capture_(capture) {}

  void add_root(const Tensor& output, Tensor gradient) {
    Edge edge;
    connect(edge, output);
    const Node origin{};
    send(origin, edge, std::move(gradient));
  }

  /// Youngest node first: all that feed a node's gradient are younger than it, so its buffers are complete when its turn comes.
  void run() {
    while (!queue_.empty()) {
      Node* node = queue_.top();
      queue_.pop();
      const auto entry = buffers_.extract(node);
      const Ref<Node> keep = std::move(entry.mapped().first);
      step(*node, entry.mapped().second);
    }
  }

 private:
  void step(Node& node, Buffers& grads) {
    for (auto& [output, slot] : node.retained)
      if (grads[output].defined()) accumulate_buffer(*slot, grads[output]);
    if (capture_) {
      const auto found = capture_->outputs.find(&node);
      if (found != capture_->outputs.end())
        for (const auto& [output, index] : found->second)
          if (grads[output].defined()) accumulate_buffer(capture_->results[index], grads[output]);
    }
    TL_CHECK(!node.released, AutogradError, node.op,
             "backward through this op a second time: its saved tensors were released; pass {.retain_graph = true} to the first backward");
    const DeviceScope scope(node.device);
    Gradients inputs = node.invoke(BackwardContext(node), grads);
    TL_CHECK(inputs.size() == node.edges.size(), AutogradError, node.op, "the gradient function returned ", inputs.size(),
             " gradients for ", node.edges.size(), " inputs");
    grads.clear();
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (node.edges[i].needed() && inputs[i].defined()) send(node, node.edges[i], std::move(inputs[i]));
    if (options_.retain_graph || options_.create_graph) return;
    node.released = true;
    node.saved.clear();
  }

  void send(const Node& from, const Edge& edge, Tensor gradient) {
    if (edge.leaf) {
      const View& view = edge.leaf->view;
      gradient = conform(from, std::move(gradient), view.sizes, view.dtype, view.device);
      if (!capture_) return accumulate_leaf(*edge.leaf, std::move(gradient));
      const auto found = capture_->leaves.find(edge.leaf.get());
      if (found == capture_->leaves.end()) return;
      for (const std::size_t index : found->second) accumulate_buffer(capture_->results[index], gradient);
      return;
    }
    Node* node = edge.node.get();
    const OutputInfo& info = node->outputs[edge.output];
    gradient = conform(from, std::move(gradient), info.sizes, info.dtype, node->device);
    const auto [entry, fresh] = buffers_.try_emplace(node, edge.node, Buffers(node->outputs.size()));
    if (fresh) queue_.push(node);
    accumulate_buffer(entry->second.second[edge.output], std::move(gradient));
  }

  BackwardOptions options_;
  Capture* capture_;
  std::priority_queue<Node*, std::vector<Node*>, Younger> queue_;
  std::unordered_map<Node*, std::pair<Ref<Node>, Buffers>> buffers_;
};

void run_engine(const char* name, const std::vector<Tensor>& outputs, const std::vector<Tensor>& output_grads, BackwardOptions options,
                Capture* capture) {
  TL_CHECK(output_grads.empty() || output_grads.size() == outputs.size(), ValueError, name, output_grads.size(), " output gradients for ",
           outputs.size(), " outputs");
  const bool saved_mode = std::exchange(thread_state().grad_enabled, options.create_graph);
  struct Restore {
    bool mode;
    ~Restore() { thread_state().grad_enabled = mode; }
  } restore{saved_mode};
  const AutocastOff full_precision;
  Engine engine(options, capture);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& output = outputs[i];
    TL_CHECK(output.requires_grad(), AutogradError, name, "output ", i, " of shape ", output.sizes(),
             " is not recorded: no tensor that it depends on requires a gradient");
    Tensor gradient = output_grads.empty() ? Tensor() : output_grads[i];
    if (!gradient.defined()) {
      TL_CHECK(output.numel() == 1, AutogradError, name, "output ", i, " has shape ", output.sizes(),
               "; only a single element has an implied gradient of 1, pass the gradient of the output");
      gradient = ones_like(output);
    }
    TL_CHECK(gradient.sizes() == output.sizes(), ShapeError, name, "gradient of shape ", gradient.sizes(), " for output ", i, " of shape ",
             output.sizes());
    engine.add_root(output, gradient);
  }
  engine.run();
}

}  // namespace
}  // namespace detail

void backward(const std::vector<Tensor>& outputs, const std::vector<Tensor>& output_grads, BackwardOptions options) {
  detail::run_engine("backward", outputs, output_grads, options, nullptr);
}

void Tensor::backward(const Tensor& gradient, BackwardOptions options) const {
  raw();
  tensorlite::backward({*this}, {gradient}, options);
}

std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs, const std::vector<Tensor>& output_grads,
                         BackwardOptions options) {
  detail::Capture capture;
  capture.results.resize(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    TL_CHECK(inputs[i].requires_grad(), AutogradError, "grad", "input ", i, " does not require a gradient");
    const auto& meta = *inputs[i].impl()->meta;
    if (meta.node) capture.outputs[meta.node.get()].emplace_back(meta.output, i);
    else capture.leaves[inputs[i].impl()].push_back(i);
  }
  detail::run_engine("grad", outputs, output_grads, options, &capture);
  return std::move(capture.results);
}

}  // namespace tensorlite
