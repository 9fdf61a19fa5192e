#include "cudnn.hpp"

#if defined(TL_HAS_CUDNN)

#include "measure.hpp"

#include <algorithm>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // the handle of plans and graphs: wanted by every cuDNN 9 before 9.15

namespace tensorlite::cuda {
namespace {

constexpr std::int64_t kReferenceEngine = 0;  ///< takes everything, and many times as long as the others

void accept(cudnnStatus_t status) {
  if (status != CUDNN_STATUS_SUCCESS) throw CudnnRefusal{status};
}

/// The library itself is unfit (a part is missing, or of another version), not this one request.
bool is_broken(cudnnStatus_t status) {
  return status == CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH || status == CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED ||
         status == CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE || status == CUDNN_STATUS_NOT_INITIALIZED;
}

std::vector<cudnnBackendNumericalNote_t> notes_of(const Descriptor& config) {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.raw();
  std::int64_t count = 0;
  accept(cudnn().descriptor_get(config.raw(), CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw));
  std::vector<cudnnBackendNumericalNote_t> notes(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  accept(cudnn().descriptor_get(engine.raw(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                static_cast<std::int64_t>(notes.size()), &count, notes.data()));
  notes.resize(static_cast<std::size_t>(std::min<std::int64_t>(count, CUDNN_NUMERICAL_NOTE_TYPE_COUNT)));
  return notes;
}

bool keeps(const Descriptor& config, const PlanRules& rules) {
  const auto notes = notes_of(config);
  const auto has = [&](cudnnBackendNumericalNote_t note) { return std::find(notes.begin(), notes.end(), note) != notes.end(); };
  if (rules.no_tensor_cores && has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE)) return false;
  if (rules.no_down_conversion && has(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)) return false;
  return !(rules.deterministic && has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC));
}

/// Engine configurations for the graph, best guess first.
std::vector<Descriptor> configurations(const Descriptor& graph, cudnnBackendHeurMode_t mode) {
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph).set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode).finalize();
  std::int64_t count = 0;
  accept(cudnn().descriptor_get(heuristics.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr));
  std::vector<Descriptor> configs;
  std::vector<cudnnBackendDescriptor_t> raws;
  for (std::int64_t i = 0; i < count; ++i) raws.push_back(configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).raw());
  if (count == 0) return configs;
  accept(
      cudnn().descriptor_get(heuristics.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count, raws.data()));
  configs.erase(configs.begin() + count, configs.end());
  return configs;
}

/// The engine's number in cuDNN's list, for the log.
std::int64_t engine_of(const Descriptor& config) {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.raw();
  std::int64_t count = 0;
  accept(cudnn().descriptor_get(config.raw(), CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw));
  return engine.get_int64(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
}

/// Null when the engine does not take the graph after all, or wants too much memory.
std::unique_ptr<Descriptor> try_plan(cudnnHandle_t handle, const Descriptor& config, std::size_t workspace_limit, std::size_t& workspace) {
  try {
    auto plan = std::make_unique<Descriptor>(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan->set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle).set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config).finalize();
    workspace = static_cast<std::size_t>(plan->get_int64(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
    if (workspace <= workspace_limit) return plan;
  } catch (const CudnnRefusal& refusal) {
    if (is_broken(refusal.status)) throw;
  }
  return nullptr;
}

}  // namespace

Cudnn& cudnn() {
  static auto* instance = new Cudnn;
  return *instance;
}

Cudnn::Cudnn() {
#define TL_CUDNN_RESOLVE(member, symbol) library.resolve(member, #symbol);
  TL_CUDNN_FUNCTIONS(TL_CUDNN_RESOLVE)
#undef TL_CUDNN_RESOLVE
  usable = library.complete();
  if (!usable) give_up(library.problem());
}

void Cudnn::give_up(const std::string& why) {
  usable = false;
  std::string found = library ? library.path() : "none";
  if (version) found += detail::concat(" ", version() / 10000, ".", version() / 100 % 100, ".", version() % 100);
  log_warning(detail::concat("convolutions do without cuDNN and are slower: ", why, " (built for cuDNN ", CUDNN_MAJOR, ".", CUDNN_MINOR,
                             ".", CUDNN_PATCHLEVEL, ", loaded: ", found, ")"));
}

cudnnHandle_t Cudnn::handle(const Context& context) {
  if (!usable) return nullptr;
  cudnnHandle_t& handle = handles[context.physical];
  if (!handle) {
    const cudnnStatus_t status = create(&handle);
    if (status != CUDNN_STATUS_SUCCESS) {
      handle = nullptr;
      give_up(detail::concat("cudnnCreate: ", status_text(status)));
      return nullptr;
    }
  }
  return set_stream(handle, stream_of(context)) == CUDNN_STATUS_SUCCESS ? handle : nullptr;
}

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) { accept(cudnn().descriptor_create(type, &raw_)); }
Descriptor::~Descriptor() {
  if (raw_) cudnn().descriptor_destroy(raw_);
}
Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count, const void* values) {
  accept(cudnn().descriptor_set(raw_, name, type, count, values));
  return *this;
}
Descriptor& Descriptor::finalize() {
  accept(cudnn().descriptor_finalize(raw_));
  return *this;
}
std::int64_t Descriptor::get_int64(cudnnBackendAttributeName_t name) const {
  std::int64_t value = 0, count = 0;
  accept(cudnn().descriptor_get(raw_, name, CUDNN_TYPE_INT64, 1, &count, &value));
  return value;
}

CudnnPlan find_plan(cudnnHandle_t handle, Descriptor&& graph, const PlanRules& rules,
                    const std::function<float(CudnnPlan&, float best)>& measure) {
  CudnnPlan best;
  int tried = 0;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    std::vector<Descriptor> configs;
    try {
      configs = configurations(graph, mode);
    } catch (const CudnnRefusal& refusal) {
      if (is_broken(refusal.status)) throw;
    }
    for (Descriptor& config : configs) {
      CudnnPlan candidate;
      if (!keeps(config, rules) || (best.plan && engine_of(config) == kReferenceEngine)) continue;
      candidate.plan = try_plan(handle, config, rules.workspace_limit, candidate.workspace);
      if (!candidate.plan) continue;
      if (measure) candidate.time = measure(candidate, best.plan ? best.time : -1);
      log_info(detail::concat("cuDNN engine ", engine_of(config), ", workspace ", candidate.workspace, ": ", candidate.time * 1e3f, " us"));
      candidate.parts.push_back(std::move(config));
      if (candidate.time >= 0 && (!best.plan || candidate.time < best.time)) best = std::move(candidate);
      if (best.plan && (!measure || ++tried >= rules.most)) break;
    }
    if (best.plan) break;
  }
  best.parts.push_back(std::move(graph));
  return best;
}

}  // namespace tensorlite::cuda

#endif
