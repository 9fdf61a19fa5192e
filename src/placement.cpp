// Where an op runs: scopes, the rules of placement, implicit copies, and the log that says so.
#include "recording.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

namespace tensorlite {

using namespace runtime;

namespace {

std::string text_of(const DeviceSpec& spec) {
  const char* type = *spec.type == DeviceType::cpu ? "CPU" : "GPU";
  return spec.any_index ? detail::concat(type, ":*") : detail::concat(type, ":", spec.index.value_or(0));
}

/// The device that a spec with a type names, or null.
Slot* find_slot(const DeviceSpec& spec) { return runtime::find_slot(*spec.type, spec.index.value_or(0)); }

struct Resolved {
  Device device;
  bool soft = false;
};
/// The spec's device; under soft placement a stand-in for an absent one: same type first, then the CPU.
Resolved resolve(std::string_view op, const DeviceSpec& spec) {
  if (const Slot* slot = find_slot(spec)) return {slot->device, false};
  if (!has_flag(kSoftPlacement)) throw_absent(op, text_of(spec));
  const Slot* same_type = runtime::find_slot(*spec.type, 0);
  return {same_type ? same_type->device : cpu_device(), true};
}

void enter(detail::ThreadState& thread, const char* op, const DeviceSpec& spec) {
  const Resolved resolved = spec.type ? resolve(op, spec) : Resolved{};
  thread.scope_device = resolved.device;
  thread.soft_fallback = resolved.soft;
  thread.has_scope = spec.type.has_value();
  thread.scope_spec = spec;
}

Device default_device() { return runtime::find_slot(gpu_device()) ? gpu_device() : cpu_device(); }

/// Once per op and device.
void warn_soft_placement(const char* op, const detail::ThreadState& thread) {
  State& s = state();
  const std::string wanted = text_of(thread.scope_spec), key = detail::concat(op, " ", wanted);
  {
    std::lock_guard guard(s.observers);
    if (std::find(s.warned.begin(), s.warned.end(), key) != s.warned.end()) return;
    s.warned.push_back(key);
  }
  log(LogLevel::warn, detail::concat(op, " runs on ", thread.scope_device, ": ", wanted, " is not present and soft placement is on"));
}

Device placed(Pending& pending, const char* op, Device device, Reason reason) {
  pending.op = op;
  pending.device = device;
  pending.reason = reason;
  pending.copies = 0;
  return device;
}

Device placed_in_scope(ThreadData& thread, const char* op) {
  if (thread.state.soft_fallback) [[unlikely]]
    warn_soft_placement(op, thread.state);
  return placed(thread.pending, op, thread.state.scope_device, thread.state.soft_fallback ? Reason::soft_placement : Reason::scope);
}

void require_one_device(const char* op, Device device, const Device* inputs, int count, const char* whose) {
  for (int i = 0; i < count; ++i)
    TL_CHECK(inputs[i] == device, DeviceMismatchError, op, "input ", i, " is on ", inputs[i], " but ", whose, " ", device,
             "; copy it with to(\"", device, "\"), or choose another config::set_placement_policy");
}

}  // namespace

namespace runtime {

std::string present_devices() {
  std::string text;
  for (DeviceType type : {DeviceType::cpu, DeviceType::gpu})
    for (int i = 0; const Slot* slot = runtime::find_slot(type, i); ++i) text += detail::concat(text.empty() ? "" : ", ", slot->device);
  return text;
}

void throw_absent(std::string_view op, const std::string& wanted) {
  std::string text = detail::concat(wanted, " is not present; present: ", present_devices());
  if (wanted.starts_with("GPU")) {
    for (const Finding& finding : config::diagnose_gpus()) {
      if (finding.ok) continue;
      text += detail::concat("\n  ", finding.layer, finding.path.empty() ? "" : " " + finding.path, ": ", finding.problem);
      if (!finding.remedy.empty()) text += detail::concat(" ", finding.remedy);
    }
  }
  throw DeviceUnavailableError(op, text);
}

}  // namespace runtime

// ---------------------------------------------------------------------------------------------------------------------------- scopes

DeviceScope::DeviceScope(std::string_view name) : saved_(detail::thread_state()) {
  const DeviceSpec spec = DeviceSpec::parse(name);
  ensure_initialized("DeviceScope", std::string(name).c_str());
  enter(detail::thread_state(), "DeviceScope", spec.merged_over(saved_.scope_spec));
}
DeviceScope::DeviceScope(Device device) : saved_(detail::thread_state()) {
  ensure_initialized("DeviceScope", short_name(device).c_str());
  enter(detail::thread_state(), "DeviceScope", {.type = device.type, .index = device.index, .any_index = false});
}
DeviceScope::DeviceScope(std::nullopt_t) : saved_(detail::thread_state()) { enter(detail::thread_state(), "DeviceScope", {}); }
DeviceScope::~DeviceScope() { detail::thread_state().restore_scope(saved_); }

ScopeSnapshot::ScopeSnapshot() : scope_(detail::thread_state()) {}
ScopeSnapshot::Guard::Guard(const ScopeSnapshot& snapshot) : saved_(detail::thread_state()) {
  detail::thread_state().restore_scope(snapshot.scope_);
}
ScopeSnapshot::Guard::~Guard() { detail::thread_state().restore_scope(saved_); }

// --------------------------------------------------------------------------------------------------------------------------- rules

namespace detail {

Device creation_device(const char* op) {
  ensure_initialized("op", op);
  ThreadData& thread = thread_data();
  if (thread.state.has_scope) return placed_in_scope(thread, op);
  return placed(thread.pending, op, default_device(), Reason::automatic);
}

void require_device(const char* op, Device device) {
  ensure_initialized("op", op);
  if (!runtime::find_slot(device)) throw_absent(op, concat(device));
  placed(thread_data().pending, op, device, Reason::given);
}

Device device_named(const char* op, std::string_view name) {
  const DeviceSpec spec = DeviceSpec::parse(name);
  ensure_initialized("op", op);
  if (!spec.type) return creation_device(op);
  return resolve(op, spec).device;
}

Device place_op(const char* op, const Device* inputs, int count) {
  ensure_initialized("op", op);
  ThreadData& thread = thread_data();
  const PlacementPolicy policy = state().placement.load(std::memory_order_relaxed);
  if (thread.state.has_scope) {
    const Device device = placed_in_scope(thread, op);
    if (policy == PlacementPolicy::explicit_only) require_one_device(op, device, inputs, count, "the scope is");
    return device;
  }
  if (policy == PlacementPolicy::explicit_only && count > 0) {
    require_one_device(op, inputs[0], inputs + 1, count - 1, "another is on");
    return placed(thread.pending, op, inputs[0], Reason::inputs);
  }
  for (int i = 0; i < count; ++i)
    if (inputs[i].is_gpu()) return placed(thread.pending, op, inputs[i], Reason::inputs);
  if (policy == PlacementPolicy::follow_inputs && count > 0) return placed(thread.pending, op, inputs[0], Reason::inputs);
  return placed(thread.pending, op, default_device(), Reason::automatic);
}

void record_copy(const char* op, int input, Device from, Device to, std::int64_t bytes) {
  ThreadData& thread = thread_data();
  if (thread.state.device_policy != DevicePolicy::silent) [[unlikely]] {
    TL_CHECK(thread.state.device_policy != DevicePolicy::error, DeviceMismatchError, op, "input ", input, " is on ", from,
             " but the op runs on ", to, "; copy it with to(\"", to, "\"), or choose another config::set_device_policy");
    log(LogLevel::warn, concat(op, ": input ", input, " is copied from ", from, " to ", to, ", ", bytes, " B"));
  }
  Counters& counters = thread_counters();
  add(counters.copies, 1);
  add(counters.copy_bytes, bytes);
  Pending& pending = thread.pending;
  if (pending.copies < kMaxPendingCopies) pending.copy[static_cast<std::size_t>(pending.copies)] = {input, from, bytes};
  ++pending.copies;
}

// ----------------------------------------------------------------------------------------------------------------------------- log

namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

const char* text_of(Reason reason) {
  switch (reason) {
    case Reason::scope: return "scope";
    case Reason::automatic: return "automatic";
    case Reason::given: return "given";
    case Reason::soft_placement: return "soft placement: not present";
    default: return "inputs";
  }
}

void print_placement(const char* op, Device device, const ThreadData& thread, const Pending& pending) {
  std::string line = concat("Executing op ", op, " in device ", canonical_name(device));
  if (pending.reason == Reason::soft_placement)
    line += concat(" (requested ", tensorlite::text_of(thread.state.scope_spec), ", ", text_of(pending.reason), ")");
  for (int i = 0; i < std::min(pending.copies, kMaxPendingCopies); ++i) {
    const PlacementEvent::Copy& copy = pending.copy[static_cast<std::size_t>(i)];
    line += concat(i ? ", " : " [", "copied input ", copy.input, " from ", copy.from, ", ", copy.bytes, " B");
  }
  if (pending.copies > kMaxPendingCopies) line += concat(", and ", pending.copies - kMaxPendingCopies, " more");
  line += pending.copies ? "]\n" : "\n";
  std::fputs(line.c_str(), stderr);
}

PlacementEvent event_of(const char* op, Device device, const ThreadData& thread, const Pending& pending, const std::vector<View>& views) {
  PlacementEvent event{
      .op = op, .device = device, .requested = {}, .reason = text_of(pending.reason), .copies = {}, .dtypes = {}, .shapes = {}};
  if (pending.reason == Reason::soft_placement)
    event.requested = Device{
        *thread.state.scope_spec.type,
        static_cast<std::int16_t>(std::min<int>(thread.state.scope_spec.index.value_or(0), std::numeric_limits<std::int16_t>::max()))};
  event.copies.assign(pending.copy.begin(), pending.copy.begin() + std::min(pending.copies, kMaxPendingCopies));
  for (const View& view : views) {
    event.dtypes.push_back(view.dtype);
    event.shapes.push_back(view.sizes);
  }
  return event;
}

}  // namespace

void KernelCall::report(const std::vector<View>& views) {
  ThreadData& thread = thread_data();
  if (thread.recording) thread.recording->use(views);
  Pending pending;
  if (std::strcmp(thread.pending.op, context_.op) == 0 && thread.pending.device == context_.device) {
    pending = thread.pending;
    thread.pending.copies = 0;
  }
  if (has_flag(kLogPlacement)) print_placement(context_.op, context_.device, thread, pending);
  if (has_flag(kSink)) {
    std::shared_ptr<const std::function<void(const PlacementEvent&)>> sink;
    {
      std::lock_guard guard(state().observers);
      sink = state().sink;
    }
    if (sink) (*sink)(event_of(context_.op, context_.device, thread, pending, views));
  }
  start_ns_ = now_ns();
}

void KernelCall::finish() {
  if (start_ns_ && has_flag(kTime))
    log(LogLevel::debug, concat("op ", context_.op, " on ", context_.device, ": ", (now_ns() - start_ns_) / 1000, " us"));
}

}  // namespace detail

// ----------------------------------------------------------------------------------------------------------------------- debugging

namespace debugging {

void set_log_device_placement(bool enable) {
  state().log_placement_chosen = true;
  set_flag(kLogPlacement, enable);
}
bool get_log_device_placement() { return has_flag(kLogPlacement); }

void set_log_sink(std::function<void(const PlacementEvent&)> sink) {
  const bool on = static_cast<bool>(sink);
  {
    std::lock_guard guard(state().observers);
    state().sink = on ? std::make_shared<const std::function<void(const PlacementEvent&)>>(std::move(sink)) : nullptr;
  }
  set_flag(kSink, on);
}

namespace {

constexpr std::size_t kCopies = 2 * kMaxLogical, kCopyBytes = kCopies + 1;

/// Sums over all threads since the start; call with state().counting held.
std::array<std::int64_t, 2 * kMaxLogical + 2> totals() {
  std::array<std::int64_t, 2 * kMaxLogical + 2> sums{};
  for (const Counters* counters : state().all_counters) {
    for (std::size_t i = 0; i < counters->ops.size(); ++i) sums[i] += counters->ops[i].load(std::memory_order_relaxed);
    sums[kCopies] += counters->copies.load(std::memory_order_relaxed);
    sums[kCopyBytes] += counters->copy_bytes.load(std::memory_order_relaxed);
  }
  return sums;
}

}  // namespace

PlacementStats placement_stats() {
  State& s = state();
  std::lock_guard guard(s.counting);
  auto sums = totals();
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] -= s.counter_baseline[i];
  PlacementStats stats;
  for (DeviceType type : {DeviceType::cpu, DeviceType::gpu})
    for (int i = 0; const Slot* slot = runtime::find_slot(type, i); ++i)
      stats.ops_per_device.emplace_back(slot->device, sums[static_cast<std::size_t>(slot->number)]);
  stats.implicit_copies = sums[kCopies];
  stats.implicit_copy_bytes = sums[kCopyBytes];
  return stats;
}

void reset_placement_stats() {
  State& s = state();
  std::lock_guard guard(s.counting);
  s.counter_baseline = totals();
}

}  // namespace debugging

}  // namespace tensorlite
