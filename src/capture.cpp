// Out-of-line L4: captured steps.
#include "recording.hpp"

#include <tensorlite/capture.hpp>

#include <algorithm>

namespace tensorlite {

// ------------------------------------------------------------------------------------------------------------- while recording
namespace runtime {

void refuse_capture(const char* op, const std::string& why) {
  throw CaptureError(op, detail::concat("cannot be part of a captured step: ", why));
}

void Recording::check_place(const detail::OpPlace& place) const {
  if (place.device != device)
    refuse_capture(place.op, detail::concat("it runs on ", place.device, ", the step is captured on ", device,
                                            "; keep the whole step on one device, or do this before or after it"));
}

void Recording::use(const std::vector<View>& views) {
  std::lock_guard guard(slot->graph_mutex);
  for (const View& view : views) memory->use(view);
}

RecordedLeaf& Recording::note(detail::TensorImpl& leaf) {
  const auto known = std::find_if(leaves.begin(), leaves.end(), [&](const RecordedLeaf& l) { return l.leaf.get() == &leaf; });
  if (known != leaves.end()) return *known;
  leaf.refs.fetch_add(1, std::memory_order_relaxed);
  RecordedLeaf noted{.leaf = detail::Ref<detail::TensorImpl>(&leaf)};
  noted.before = Tensor(noted.leaf).grad();
  return leaves.emplace_back(std::move(noted));
}

namespace {

bool same_memory(const Tensor& a, const Tensor& b) { return a.defined() && b.defined() && a.raw().data == b.raw().data; }

std::vector<Tensor> detached(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> out;
  for (const Tensor& t : tensors) out.push_back(t.defined() ? t.detach() : t);
  return out;
}

/// A recorded step, ready to run.
class StepGraph {
 public:
  using Body = std::function<std::vector<Tensor>()>;

  /// Throws what the body throws, CaptureError or BackendError; gradients are then what they were.
  StepGraph(Device device, const Body& body) : slot_(open_slot("capture", device)), memory_(open_graph_memory(slot_)) {
    try {
      record(device, body);
    } catch (...) {
      for (const RecordedLeaf& leaf : leaves_) Tensor(leaf.leaf).set_grad(leaf.before);
      close();
      throw;
    }
  }
  ~StepGraph() { close(); }
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  const std::vector<Tensor>& outputs() const { return outputs_; }

  void run() {
    check();
    std::vector<OptimizerParams> steps;
    for (const auto& update : updates_) steps.push_back(update->advance());
    for (const RecordedLeaf& leaf : leaves_)
      if (!leaf.accumulates) Tensor(leaf.leaf).set_grad(leaf.after);
    slot_.backend->run_graph(graph_, {.key = take_draws(draws_), .optimizer_steps = steps});
  }

 private:
  void record(Device device, const Body& body) {
    graph_ = slot_.backend->begin_graph(slot_.physical);
    Recording recording{.device = device, .slot = &slot_, .memory = &memory_, .graph = graph_};
    thread_data().recording = &recording;
    try {
      outputs_ = detached(body());
    } catch (...) {
      thread_data().recording = nullptr;
      leaves_ = std::move(recording.leaves);
      throw;
    }
    thread_data().recording = nullptr;
    draws_ = recording.draws;
    updates_ = std::move(recording.updates);
    leaves_ = std::move(recording.leaves);
    for (RecordedLeaf& leaf : leaves_) leaf.after = Tensor(leaf.leaf).grad();
    slot_.backend->end_graph(graph_);
  }

  /// Before anything changes.
  void check() const {
    for (const auto& update : updates_) update->check();
    for (const RecordedLeaf& leaf : leaves_)
      TL_CHECK(!leaf.accumulates || same_memory(Tensor(leaf.leaf).grad(), leaf.after), CaptureError, "capture",
               "the step adds to a gradient of shape ", leaf.after.sizes(),
               " that was dropped or replaced since it was recorded; set it to zero in place (grad().zero_()), or drop it inside the step");
  }

  void close() {
    if (graph_ && !slot_.lost) slot_.backend->destroy_graph(graph_);
    graph_ = nullptr;
    updates_.clear();
    leaves_.clear();
    outputs_.clear();
    if (!slot_.lost) close_graph_memory(slot_, memory_);
  }

  Slot& slot_;
  GraphMemory& memory_;
  void* graph_ = nullptr;
  std::uint64_t draws_ = 0;
  std::vector<std::unique_ptr<RecordedUpdate>> updates_;
  std::vector<RecordedLeaf> leaves_;
  std::vector<Tensor> outputs_;
};

}  // namespace
}  // namespace runtime

// --------------------------------------------------------------------------------------------------------------- CapturedStep

struct CapturedStep::Impl {
  Step step;
  int warmup;
  Device device;
  std::int64_t calls = 0;
  std::vector<Tensor> inputs = {}, results = {};
  std::unique_ptr<runtime::StepGraph> graph = nullptr;

  void take_inputs(const std::vector<Tensor>& given);
  void check_inputs(const std::vector<Tensor>& given) const;
  bool records_now() const { return calls >= warmup && open_backend().begin_graph; }
  const Backend& open_backend() const { return *runtime::open_slot("capture", device).backend; }
};

void CapturedStep::Impl::check_inputs(const std::vector<Tensor>& given) const {
  for (std::size_t i = 0; i < given.size(); ++i)
    TL_CHECK(given[i].defined(), ValueError, "capture", "input ", i, " is an undefined tensor");
  if (calls == 0) return;
  TL_CHECK(given.size() == inputs.size(), ValueError, "capture", "the step was captured with ", inputs.size(), " inputs, it is given ",
           given.size());
  for (std::size_t i = 0; i < given.size(); ++i) {
    TL_CHECK(given[i].sizes() == inputs[i].sizes(), ShapeError, "capture", "input ", i, " was captured with shape ", inputs[i].sizes(),
             ", it is given ", given[i].sizes(), "; capture another step for other shapes, or run it uncaptured");
    TL_CHECK(given[i].dtype() == inputs[i].dtype(), DTypeError, "capture", "input ", i, " was captured as ", inputs[i].dtype(),
             ", it is given as ", given[i].dtype());
  }
}

void CapturedStep::Impl::take_inputs(const std::vector<Tensor>& given) {
  const NoGradGuard no_grad;
  if (calls == 0) {
    for (const Tensor& t : given) inputs.push_back(t.detach().to(device).clone());
    return;
  }
  for (std::size_t i = 0; i < given.size(); ++i) {
    const View &to = inputs[i].raw(), from = given[i].raw();
    if (from.device != device && from.is_contiguous() && to.numel() > 0)
      detail::copy_bytes(to.data, device, from.data, from.device, static_cast<std::size_t>(to.nbytes()));
    else inputs[i].copy_(given[i]);
  }
}

CapturedStep::CapturedStep(Step step, const CaptureOptions& options) {
  TL_CHECK(options.warmup >= 1, ValueError, "capture", "the step must run at least once before it is recorded, warmup is ", options.warmup);
  TL_CHECK(step != nullptr, ValueError, "capture", "the step is an empty function");
  if (options.device) detail::require_device("capture", *options.device);
  const Device device = options.device ? *options.device : detail::creation_device("capture");
  impl_ = std::make_unique<Impl>(Impl{.step = std::move(step), .warmup = options.warmup, .device = device});
}
CapturedStep::CapturedStep(CapturedStep&& other) noexcept = default;
CapturedStep& CapturedStep::operator=(CapturedStep&& other) noexcept = default;
CapturedStep::~CapturedStep() = default;

const std::vector<Tensor>& CapturedStep::operator()(const std::vector<Tensor>& inputs) {
  TL_CHECK(impl_, ValueError, "capture", "the captured step was moved from");
  runtime::refuse_in_capture("capture", "a captured step is a whole of its own; call it before or after");
  Impl& self = *impl_;
  self.check_inputs(inputs);
  const DeviceScope scope(self.device);
  self.take_inputs(inputs);
  if (!self.graph && self.records_now())
    self.graph = std::make_unique<runtime::StepGraph>(self.device, [&] { return self.step(self.inputs); });
  ++self.calls;
  if (!self.graph) return self.results = runtime::detached(self.step(self.inputs));
  self.results.clear();
  self.graph->run();
  return self.graph->outputs();
}

bool CapturedStep::is_captured() const { return impl_ && impl_->graph; }

}  // namespace tensorlite
