// What the user chooses before and after initialization, and initialization itself.
#include "runtime_state.hpp"

#include "cpu/backend.hpp"
#include "cpu/parallel.hpp"
#include "platform.hpp"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tensorlite {

using namespace runtime;
using detail::concat;

namespace runtime {

namespace {

const char* text_of(DeviceType type) { return type == DeviceType::cpu ? "CPU" : "GPU"; }

Physical make_physical(DeviceType type, int index, int ordinal, const Backend& backend) {
  Physical physical;
  physical.id = {concat("/physical_device:", text_of(type), ":", index), text_of(type)};
  physical.type = type;
  physical.ordinal = ordinal;
  backend.properties(ordinal, physical.properties);
  return physical;
}

void skip_gpu(State& s, int ordinal, const std::string& reason) {
  s.skipped_gpus.push_back(
      {.layer = concat("GPU ", ordinal), .ok = false, .built_for = "", .found = "", .path = "", .problem = reason, .remedy = ""});
}

void add_slot(State& s, const Physical& physical, const Backend& backend, const LogicalDeviceConfiguration& slice) {
  const auto type = static_cast<std::size_t>(physical.type);
  const int index = s.slot_count[type].load(std::memory_order_relaxed);
  if (index >= kMaxLogical) return;
  Slot* slot = new Slot;
  slot->device = {physical.type, static_cast<std::int16_t>(index)};
  slot->backend = &backend;
  slot->physical = physical.ordinal;
  slot->number = static_cast<int>(type) * kMaxLogical + index;
  slot->limit = static_cast<std::size_t>(slice.memory_limit.value_or(0)) << 20;
  slot->growth = physical.type == DeviceType::cpu || forced_growth().value_or(physical.growth);
  s.slots[type][static_cast<std::size_t>(index)].store(slot, std::memory_order_release);
  s.slot_count[type].store(index + 1, std::memory_order_release);
}

void add_slots(State& s, const std::vector<Physical>& physicals, const Backend* backend) {
  for (const Physical& physical : physicals) {
    if (!physical.visible) continue;
    if (physical.slices.empty()) add_slot(s, physical, *backend, {});
    for (const LogicalDeviceConfiguration& slice : physical.slices) add_slot(s, physical, *backend, slice);
  }
}

}  // namespace

void read_log_environment() {
  const char* placement = std::getenv("TENSORLITE_LOG_PLACEMENT");
  if (placement && *placement && std::strcmp(placement, "0") != 0 && std::strcmp(placement, "false") != 0 && !state().log_placement_chosen)
    set_flag(kLogPlacement, true);
  const char* text = std::getenv("TENSORLITE_LOG");
  if (!text || !*text) return;
  constexpr const char* names[] = {"error", "warn", "info", "debug"};
  for (int i = 0; i < 4; ++i) {
    if (std::strcmp(text, names[i]) != 0) continue;
    state().log_level.store(static_cast<LogLevel>(i));
    set_flag(kTime, i == 3);
    return;
  }
  log(LogLevel::error, concat("TENSORLITE_LOG=", text, " is ignored; write error, warn, info or debug"));
}

std::optional<bool> forced_growth() {
  for (const char* name : {"TENSORLITE_FORCE_GPU_ALLOW_GROWTH", "TF_FORCE_GPU_ALLOW_GROWTH"}) {
    const char* text = std::getenv(name);
    if (!text || !*text) continue;
    if (std::strcmp(text, "true") == 0) return true;
    if (std::strcmp(text, "false") == 0) return false;
    static std::atomic<int> complained{0};
    if (complained.fetch_add(1) == 0) log(LogLevel::error, concat(name, "=", text, " is ignored; write true or false"));
  }
  return std::nullopt;
}

void discover_cpus(State& s) {
  if (s.cpu_found) return;
  s.cpus.push_back(make_physical(DeviceType::cpu, 0, 0, cpu::backend()));
  s.cpu_found = true;
}

void discover_gpus(State& s) {
  if (s.gpu_searched) return;
  s.gpu_searched = true;
  s.gpu_backend = load_gpu_backend(s.loader_findings);
  const int count = s.gpu_backend ? s.gpu_backend->device_count() : 0;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    try {
      Physical physical = make_physical(DeviceType::gpu, static_cast<int>(s.gpus.size()), ordinal, *s.gpu_backend);
      if (physical.properties.usable) s.gpus.push_back(std::move(physical));
      else skip_gpu(s, ordinal, concat("This GPU is not used: ", physical.properties.name, ", ", physical.properties.reason, "."));
    } catch (const std::exception& error) { skip_gpu(s, ordinal, error.what()); }
  }
}

TypeFilter filter_of(std::string_view type) {
  std::string upper(type);
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (upper.empty()) return TypeFilter::all;
  if (upper == "CPU") return TypeFilter::cpu;
  return upper == "GPU" ? TypeFilter::gpu : TypeFilter::unknown;
}

std::vector<Physical*> physicals(State& s, TypeFilter filter) {
  std::vector<Physical*> found;
  const auto take = [&](std::vector<Physical>& from) {
    for (Physical& physical : from) found.push_back(&physical);
  };
  if (filter == TypeFilter::all || filter == TypeFilter::cpu) discover_cpus(s), take(s.cpus);
  if (filter == TypeFilter::all || filter == TypeFilter::gpu) discover_gpus(s), take(s.gpus);
  return found;
}

std::string list_of(const std::vector<Physical*>& devices) {
  std::string text;
  for (const Physical* device : devices) text += (text.empty() ? "" : ", ") + device->id.name;
  return text.empty() ? "none" : text;
}

Physical& find_physical(State& s, const char* call, const PhysicalDevice& device) {
  const std::vector<Physical*> all = physicals(s, TypeFilter::all);
  for (Physical* physical : all)
    if (physical->id == device) return *physical;
  throw ValueError(
      call, concat("'", device.name, "' of type '", device.device_type, "' is not a device of this machine; there are: ", list_of(all)));
}

void initialize(const char* kind, const char* by) {
  State& s = state();
  std::lock_guard guard(s.mutex);
  if (s.initialized.load(std::memory_order_relaxed)) return;
  read_log_environment();
  discover_cpus(s);
  discover_gpus(s);
  add_slots(s, s.cpus, &cpu::backend());
  add_slots(s, s.gpus, s.gpu_backend);
  s.initialized_by = *by ? concat(kind, " ", by) : kind;
  s.initialized.store(true, std::memory_order_release);
  log(LogLevel::info, concat("devices: ", present_devices(), ", initialized by ", s.initialized_by));
}

}  // namespace runtime

namespace config {

namespace {

/// Throws when the devices have been made; `setting` is frozen then.
void require_unfrozen(State& s, const char* call, const std::string& setting, const std::string& from, const std::string& to) {
  TL_CHECK(!s.initialized.load(), AlreadyInitializedError, call, setting, " cannot change from ", from, " to ", to,
           ": the devices were initialized by ", s.initialized_by,
           "; it must be set before their first use (the first op, tensor, DeviceScope, list_logical_devices or get_memory_info)");
}

std::string text_of(const std::vector<LogicalDeviceConfiguration>& slices) {
  if (slices.empty()) return "the whole device";
  std::string text;
  for (const LogicalDeviceConfiguration& slice : slices)
    text += (text.empty() ? "[" : ", ") + (slice.memory_limit ? concat(*slice.memory_limit, " MiB") : "no limit");
  return text + "]";
}

/// The one slot that a name means. Throws ValueError.
Slot& slot_named(const char* call, std::string_view name) {
  const DeviceSpec spec = DeviceSpec::parse(name);
  ensure_initialized("call", call);
  std::vector<Slot*> matches;
  for (DeviceType type : {DeviceType::cpu, DeviceType::gpu}) {
    if (spec.type.value_or(type) != type) continue;
    for (int i = 0; Slot* slot = find_slot(type, i); ++i)
      if (spec.index.value_or(i) == i) matches.push_back(slot);
  }
  TL_CHECK(!matches.empty(), ValueError, call, "no device matches '", name, "'; present: ", present_devices());
  TL_CHECK(matches.size() == 1, ValueError, call, "several devices match '", name, "'; name one of: ", present_devices());
  return *matches[0];
}

}  // namespace

std::vector<PhysicalDevice> list_physical_devices(std::string_view type) {
  State& s = state();
  std::lock_guard guard(s.mutex);
  std::vector<PhysicalDevice> devices;
  for (const Physical* physical : physicals(s, filter_of(type))) devices.push_back(physical->id);
  return devices;
}

std::vector<LogicalDevice> list_logical_devices(std::string_view type) {
  ensure_initialized("call", "list_logical_devices");
  const TypeFilter filter = filter_of(type);
  std::vector<LogicalDevice> devices;
  for (DeviceType t : {DeviceType::cpu, DeviceType::gpu}) {
    if (filter != TypeFilter::all && filter != (t == DeviceType::cpu ? TypeFilter::cpu : TypeFilter::gpu)) continue;
    for (int i = 0; const Slot* slot = find_slot(t, i); ++i)
      devices.push_back({concat("/device:", slot->device), slot->device.is_cpu() ? "CPU" : "GPU"});
  }
  return devices;
}

void set_visible_devices(const std::vector<PhysicalDevice>& devices, std::string_view type) {
  constexpr const char* call = "set_visible_devices";
  State& s = state();
  std::lock_guard guard(s.mutex);
  const TypeFilter filter = filter_of(type);
  TL_CHECK(filter != TypeFilter::unknown, ValueError, call, "'", type, "' is not a device type; write \"CPU\", \"GPU\" or nothing");
  std::vector<Physical*> wanted;
  for (const PhysicalDevice& device : devices) {
    Physical& physical = find_physical(s, call, device);
    TL_CHECK(filter == TypeFilter::all || filter == filter_of(physical.id.device_type), ValueError, call, device.name, " is not a ", type);
    wanted.push_back(&physical);
  }
  const auto is_wanted = [&](const Physical* p) { return std::find(wanted.begin(), wanted.end(), p) != wanted.end(); };
  const std::vector<Physical*> scope = physicals(s, filter);
  bool changes = false;
  std::vector<Physical*> now, then;
  for (Physical* physical : scope) {
    TL_CHECK(physical->type != DeviceType::cpu || is_wanted(physical), ValueError, call,
             "the CPU cannot be hidden; add it to the list, or name the type of the list: set_visible_devices(devices, \"GPU\")");
    changes = changes || physical->visible != is_wanted(physical);
    if (physical->visible) now.push_back(physical);
    if (is_wanted(physical)) then.push_back(physical);
  }
  if (!changes) return;
  require_unfrozen(s, call, "the list of visible devices", list_of(now), list_of(then));
  for (Physical* physical : scope) physical->visible = is_wanted(physical);
}

std::vector<PhysicalDevice> get_visible_devices(std::string_view type) {
  State& s = state();
  std::lock_guard guard(s.mutex);
  std::vector<PhysicalDevice> devices;
  for (const Physical* physical : physicals(s, filter_of(type)))
    if (physical->visible) devices.push_back(physical->id);
  return devices;
}

void set_memory_growth(const PhysicalDevice& device, bool enable) {
  constexpr const char* call = "set_memory_growth";
  State& s = state();
  std::lock_guard guard(s.mutex);
  Physical& physical = find_physical(s, call, device);
  TL_CHECK(physical.type == DeviceType::gpu, ValueError, call, device.name, " is a CPU, whose memory always grows as needed; name a GPU");
  if (physical.growth == enable) return;
  require_unfrozen(s, call, concat("memory growth of ", device.name), concat(physical.growth), concat(enable));
  physical.growth = enable;
}

bool get_memory_growth(const PhysicalDevice& device) {
  constexpr const char* call = "get_memory_growth";
  State& s = state();
  std::lock_guard guard(s.mutex);
  const Physical& physical = find_physical(s, call, device);
  TL_CHECK(physical.type == DeviceType::gpu, ValueError, call, device.name, " is a CPU, whose memory always grows as needed; name a GPU");
  return forced_growth().value_or(physical.growth);
}

void set_logical_device_configuration(const PhysicalDevice& device, const std::vector<LogicalDeviceConfiguration>& slices) {
  constexpr const char* call = "set_logical_device_configuration";
  State& s = state();
  std::lock_guard guard(s.mutex);
  Physical& physical = find_physical(s, call, device);
  std::size_t count = slices.size();
  for (const Physical* other : physicals(s, filter_of(device.device_type)))
    if (other != &physical) count += std::max<std::size_t>(other->slices.size(), 1);
  TL_CHECK(count <= kMaxLogical, ValueError, call, slices.size(), " slices of ", device.name, " make ", count, " logical devices of type ",
           device.device_type, "; at most ", kMaxLogical, " are possible");
  const std::int64_t total = physical.properties.total_memory >> 20;
  std::int64_t sum = 0;
  for (const LogicalDeviceConfiguration& slice : slices) {
    TL_CHECK(slice.memory_limit || physical.type == DeviceType::cpu, ValueError, call, "a slice of ", device.name,
             " has no memory_limit; a GPU's must have one, in MiB");
    if (!slice.memory_limit) continue;
    TL_CHECK(*slice.memory_limit > 0, ValueError, call, "memory_limit ", *slice.memory_limit, " MiB of ", device.name, " is not positive");
    sum = *slice.memory_limit > total - sum ? total + 1 : sum + *slice.memory_limit;
    TL_CHECK(sum <= total, ValueError, call, "the limits ", text_of(slices), " together exceed the ", total, " MiB of ", device.name);
  }
  if (physical.slices == slices) return;
  require_unfrozen(s, call, concat("the logical device configuration of ", device.name), text_of(physical.slices), text_of(slices));
  physical.slices = slices;
}

std::vector<LogicalDeviceConfiguration> get_logical_device_configuration(const PhysicalDevice& device) {
  State& s = state();
  std::lock_guard guard(s.mutex);
  return find_physical(s, "get_logical_device_configuration", device).slices;
}

void set_soft_device_placement(bool enable) { set_flag(kSoftPlacement, enable); }
bool get_soft_device_placement() { return has_flag(kSoftPlacement); }
void set_device_policy(DevicePolicy policy) { detail::thread_state().device_policy = policy; }
DevicePolicy get_device_policy() { return detail::thread_state().device_policy; }
void set_placement_policy(PlacementPolicy policy) { state().placement.store(policy); }
PlacementPolicy get_placement_policy() { return state().placement.load(); }
void set_float32_precision(Float32Precision precision) { set_flag(kTf32, precision == Float32Precision::tf32); }
Float32Precision get_float32_precision() { return has_flag(kTf32) ? Float32Precision::tf32 : Float32Precision::highest; }
void set_deterministic(bool enable) { set_flag(kDeterministic, enable); }
bool get_deterministic() { return has_flag(kDeterministic); }
void set_autotune(bool enable) { set_flag(kAutotune, enable); }
bool get_autotune() { return has_flag(kAutotune); }

void set_num_threads(int count) {
  TL_CHECK(count >= 0, ValueError, "set_num_threads", count, " threads; write a positive number, or 0 for the default");
  cpu::set_num_threads(count);
}
int get_num_threads() { return cpu::num_threads(); }
void set_parallel_for(ParallelFor run) { cpu::set_parallel_for(run); }

MemoryInfo get_memory_info(std::string_view device) {
  constexpr const char* call = "get_memory_info";
  const Slot& slot = open_slot(call, slot_named(call, device).device);
  const detail::PoolStats stats = slot.pool->stats();
  const auto bytes = [](std::size_t n) {
    return static_cast<std::int64_t>(std::min<std::size_t>(n, std::numeric_limits<std::int64_t>::max()));
  };
  return {.current = bytes(stats.in_use),
          .peak = bytes(stats.peak_in_use),
          .reserved = bytes(stats.reserved),
          .peak_reserved = bytes(stats.peak_reserved),
          .limit = bytes(stats.limit),
          .largest_free_block = bytes(stats.largest_free_block),
          .num_allocs = stats.allocations};
}

void reset_memory_stats(std::string_view device) {
  const Slot& slot = slot_named("reset_memory_stats", device);
  if (slot.open.load(std::memory_order_acquire)) slot.pool->reset_stats();
}

std::int64_t trim(std::string_view device) {
  const Slot& slot = slot_named("trim", device);
  if (!slot.open.load(std::memory_order_acquire)) return 0;
  if (slot.backend->synchronize) slot.backend->synchronize(slot.physical);
  return static_cast<std::int64_t>(slot.pool->trim());
}

}  // namespace config

}  // namespace tensorlite
