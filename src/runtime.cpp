// All process-wide state: the devices and their pools, the switches, the counters, the random seed, the state of a thread.
#include "recording.hpp"

#include "platform.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tensorlite {

namespace runtime {

namespace {

constinit thread_local ThreadData t_data;

/// Hands the thread's counters on when the thread ends; what they counted stays counted.
struct CountersOwner {
  Counters* counters = nullptr;
  ~CountersOwner();
};
thread_local CountersOwner t_owner;

/// For ops that run while a thread's thread_local objects die: shared, hence not exact.
Counters& late_counters() {
  static Counters& counters = *new Counters;
  return counters;
}

CountersOwner::~CountersOwner() {
  if (!counters) return;
  std::lock_guard guard(state().counting);
  state().spare_counters.push_back(counters);
  t_data.counters = &late_counters();
}

// Around fork() every lock is held, so that the child gets consistent pools. The child's GPUs are lost: a driver's context does not
// survive a fork.
template <class F> void for_each_slot(F&& f) {
  for (auto& type : state().slots)
    for (auto& entry : type)
      if (Slot* slot = entry.load(std::memory_order_acquire)) f(*slot);
}
void before_fork() {
  State& s = state();
  s.mutex.lock();
  s.opening.lock();
  s.counting.lock();
  s.observers.lock();
  s.random.lock();
  for_each_slot([](Slot& slot) {
    if (slot.pool) slot.pool->lock();
  });
}
void after_fork() {
  State& s = state();
  for_each_slot([](Slot& slot) {
    if (slot.pool) slot.pool->unlock();
  });
  s.random.unlock();
  s.observers.unlock();
  s.counting.unlock();
  s.opening.unlock();
  s.mutex.unlock();
}
void after_fork_in_child() {
  const bool gpu_used = !state().opened_gpus.empty();
  for_each_slot([&](Slot& slot) {
    if (!gpu_used || slot.device.is_cpu()) return;
    slot.lost = true;
    slot.open.store(false, std::memory_order_release);
  });
  after_fork();
}

}  // namespace

State& state() {
  static State& s = *[] {
    State* made = new State;
    platform::at_fork(before_fork, after_fork, after_fork_in_child);
    return made;
  }();
  return s;
}

namespace {
// Made when the library is loaded: a child forked while another thread makes it would wait for that thread forever.
[[maybe_unused]] State& g_made_at_load = state();
}  // namespace

ThreadData& thread_data() { return t_data; }

Counters& thread_counters() {
  if (!t_data.counters) {
    State& s = state();
    std::lock_guard guard(s.counting);
    if (s.all_counters.empty()) s.all_counters.push_back(&late_counters());
    if (s.spare_counters.empty()) {
      s.spare_counters.push_back(new Counters);
      s.all_counters.push_back(s.spare_counters.back());
    }
    t_data.counters = t_owner.counters = s.spare_counters.back();
    s.spare_counters.pop_back();
  }
  return *t_data.counters;
}

void set_flag(Flag flag, bool on) {
  if (on) state().flags.fetch_or(flag);
  else state().flags.fetch_and(~static_cast<std::uint32_t>(flag));
}

void log(LogLevel level, const std::string& text) {
  if (level > state().log_level.load(std::memory_order_relaxed)) return;
  constexpr const char* names[] = {"error", "warning", "info", "debug"};
  const std::string line = detail::concat("tensorlite: ", names[static_cast<int>(level)], ": ", text, "\n");
  std::fputs(line.c_str(), stderr);
}

// ------------------------------------------------------------------------------------------------------------- first use of a device

namespace {

/// Bytes of a GPU left to its context, libraries and late-loaded kernels, by what such a GPU was seen to need.
std::int64_t gpu_reserve(const DeviceProperties& properties) {
  constexpr std::int64_t mib = 1 << 20;
  if (properties.total_memory <= 2048 * mib) return properties.total_memory / 16;
  if (properties.compute_major <= 6) return 500 * mib;
  if (properties.compute_major == 7) return 1050 * mib;
  if (properties.compute_major == 8) return 1536 * mib;
  return 1843 * mib;
}

std::size_t default_limit(const Slot& slot) {
  if (slot.device.is_cpu()) return static_cast<std::size_t>(std::max<std::int64_t>(platform::total_memory(), 64 << 20));
  DeviceProperties properties;
  slot.backend->properties(slot.physical, properties);
  const std::int64_t free = driver_memory(slot).first;
  return static_cast<std::size_t>(std::max<std::int64_t>(free - gpu_reserve(properties), 1));
}

std::unique_ptr<detail::CachingAllocator> make_pool(const Slot& slot) {
  const Backend* backend = slot.backend;
  const int physical = slot.physical;
  const std::size_t limit = slot.limit ? slot.limit : default_limit(slot);
  detail::RegionSource source;
  source.map = [=](std::size_t bytes) { return backend->map_memory(physical, bytes, limit); };
  source.unmap = [=](void* data, std::size_t bytes) { backend->unmap_memory(physical, data, bytes); };
  return std::make_unique<detail::CachingAllocator>(std::move(source),
                                                    detail::PoolOptions{.granularity = backend->granularity,
                                                                        .region_granularity = backend->region_granularity,
                                                                        .limit = limit,
                                                                        .growth = slot.growth,
                                                                        .merge_regions = backend->contiguous_regions,
                                                                        .quick_lists = true});
}

/// Work of one stream may still use memory that was given back in its order; another stream waits before it gets that memory.
void order_streams(Slot& slot) {
  if (!slot.backend->current_stream) return;
  void* stream = slot.backend->current_stream(slot.physical);
  if (stream == slot.last_stream.load(std::memory_order_relaxed)) return;
  if (slot.last_stream.exchange(stream) != nullptr) slot.backend->synchronize(slot.physical);
}

[[noreturn]] void throw_out_of_memory(const Slot& slot, std::size_t bytes) {
  const detail::PoolStats stats = slot.pool->stats();
  std::string text =
      detail::concat("out of memory on ", slot.device, ": requested ", detail::format_bytes(bytes), ", in use ",
                     detail::format_bytes(stats.in_use), ", reserved ", detail::format_bytes(stats.reserved), ", limit ",
                     detail::format_bytes(stats.limit), ", largest free block ", detail::format_bytes(stats.largest_free_block),
                     ", driver-free ", detail::format_bytes(static_cast<std::uint64_t>(driver_memory(slot).first)));
  const std::string live = slot.pool->largest_live(8);
  if (!live.empty()) text += "\nlargest live blocks:" + live;
  text += "\nuse smaller tensors or batches, release what is not needed";
  if (slot.limit) text += ", or raise the device's memory_limit";
  throw OutOfMemoryError(thread_data().pending.op[0] ? thread_data().pending.op : "allocate", text);
}

}  // namespace

std::pair<std::int64_t, std::int64_t> driver_memory(const Slot& slot) {
  std::int64_t free = 0, total = 0;
  slot.backend->memory_info(slot.physical, free, total);
  return {std::max<std::int64_t>(free, 0), total};
}

Slot& open_slot(const char* op, Device device) {
  ensure_initialized("op", op);
  State& s = state();
  Slot* slot = find_slot(device);
  if (!slot) throw_absent(op, detail::concat(device));
  if (slot->open.load(std::memory_order_acquire)) return *slot;
  std::lock_guard guard(s.opening);
  if (slot->open.load(std::memory_order_acquire)) return *slot;
  TL_CHECK(
      !slot->lost, DeviceUnavailableError, op, device,
      " cannot be used in a child process: the parent used it before fork(); start the child with exec, or fork before the first use of "
      "a GPU (the CPU works here)");
  if (device.is_gpu() && std::find(s.opened_gpus.begin(), s.opened_gpus.end(), slot->physical) == s.opened_gpus.end()) {
    if (slot->backend->initialize) slot->backend->initialize(slot->physical);
    s.opened_gpus.push_back(slot->physical);
  }
  slot->pool = make_pool(*slot);
  log(LogLevel::info, detail::concat(device, " is opened: limit ", detail::format_bytes(slot->pool->stats().limit),
                                     slot->growth ? ", its memory grows as needed" : ", taken at first use"));
  slot->open.store(true, std::memory_order_release);
  return *slot;
}

}  // namespace runtime

// ------------------------------------------------------------------------------------------------------------ what ops need (detail)

namespace detail {

using namespace runtime;

ThreadState& thread_state() { return thread_data().state; }

namespace {
void* allocate_recorded(const Recording& recording, std::size_t bytes) {
  void* data = nullptr;
  {
    std::lock_guard guard(recording.slot->graph_mutex);
    data = recording.memory->allocate(bytes);
  }
  if (!data) throw_out_of_memory(*recording.slot, bytes);
  return data;
}
}  // namespace

void* allocate(Device device, std::size_t bytes) {
  if (bytes == 0) return nullptr;
  if (const Recording* r = recording(); r && r->device == device) [[unlikely]]
    return allocate_recorded(*r, bytes);
  Slot* slot = find_slot(device);
  if (!slot || !slot->open.load(std::memory_order_acquire)) slot = &open_slot("allocate", device);
  order_streams(*slot);
  void* data = slot->pool->allocate(bytes);
  if (!data) throw_out_of_memory(*slot, bytes);
  return data;
}

void release(Device device, void* data) {
  if (!data) return;
  Slot* slot = find_slot(device);
  if (!slot || slot->lost) return;
  if (slot->device.is_gpu()) {
    if (slot->graph_count.load(std::memory_order_relaxed) > 0 && release_to_graphs(*slot, data)) return;
    try {
      if (!recording()) order_streams(*slot);
    } catch (const std::exception& error) {  // After main the driver may be gone already, and a tensor of static lifetime dies quietly.
      log(LogLevel::debug, concat("release on ", device, ": ", error.what()));
    }
  }
  if (!slot->pool || !slot->pool->release(data)) {
    char address[32];
    std::snprintf(address, sizeof address, "%p", data);
    log(LogLevel::error,
        concat("release on ", device, ": ", address, " is not a live block of this device (a foreign pointer, or freed twice)"));
  }
}

namespace {
/// Copies within its device are recorded, all others throw.
void check_recorded_copy(const char* op, Device to, Device from) {
  const Recording* r = recording();
  if (!r || (to == r->device && from == r->device)) return;
  if (to.is_cpu())
    refuse_capture(op, "it waits for the device and brings a result to the host; return the tensor from the step and read it afterwards");
  if (from.is_cpu())
    refuse_capture(op, "it copies host memory, as it is now, to the device; make the tensor before the step, or pass it as an input");
  refuse_capture(op, concat("it copies from ", from, " to ", to, "; keep the whole step on one device"));
}
}  // namespace

void copy_bytes(void* to, Device to_device, const void* from, Device from_device, std::size_t bytes, const char* op) {
  if (bytes == 0) return;
  check_recorded_copy(op, to_device, from_device);
  if (to_device.is_cpu() && from_device.is_cpu()) {
    std::memcpy(to, from, bytes);
    return;
  }
  const auto ordinal = [](Device device) { return device.is_cpu() ? -1 : open_slot("copy", device).physical; };
  const int to_physical = ordinal(to_device), from_physical = ordinal(from_device);
  const Slot& slot = open_slot("copy", to_device.is_gpu() ? to_device : from_device);
  void* stream = slot.backend->current_stream ? slot.backend->current_stream(slot.physical) : nullptr;
  slot.backend->copy_bytes(to, to_physical, from, from_physical, bytes, stream);
}

KernelCall::KernelCall(const OpPlace& place) {
  Slot* slot = find_slot(place.device);
  if (!slot || !slot->open.load(std::memory_order_acquire)) [[unlikely]]
    slot = &open_slot(place.op, place.device);
  kernels_ = &slot->backend->kernels;
  const std::uint32_t flags = state().flags.load(std::memory_order_relaxed);
  observed_ = (flags & kObserved) != 0;
  context_ = {.op = place.op,
              .device = place.device,
              .physical = slot->physical,
              .stream = slot->backend->current_stream ? slot->backend->current_stream(slot->physical) : nullptr,
              .deterministic = (flags & kDeterministic) != 0,
              .allow_tf32 = (flags & kTf32) != 0,
              .autotune = (flags & kAutotune) != 0,
              .allocate = &allocate,
              .release = &release};
  add(thread_counters().ops[static_cast<std::size_t>(slot->number)], 1);
  if (const Recording* r = recording()) [[unlikely]] {
    r->check_place(place);
    context_.graph = r->graph;
    observed_ = true;
  }
}

}  // namespace detail

void synchronize(Device device) {
  runtime::refuse_in_capture("synchronize", "it waits for the device; wait after the step");
  runtime::Slot* slot = runtime::find_slot(device);
  if (!slot) detail::require_device("synchronize", device);
  if (slot && slot->open.load(std::memory_order_acquire) && slot->backend->synchronize) slot->backend->synchronize(slot->physical);
}
void synchronize() {
  for (int i = 0; i < runtime::kMaxLogical; ++i)
    if (runtime::find_slot(gpu_device(i))) synchronize(gpu_device(i));
}

// -------------------------------------------------------------------------------------------------------------------- random numbers

void manual_seed(std::uint64_t seed) { set_rng_state({.seed = seed, .offset = 0}); }
PhiloxKey next_philox_key() {
  if (runtime::Recording* r = runtime::recording()) [[unlikely]]
    return {.seed = 0, .offset = r->draws++};  // counted from the key that each run is given
  return runtime::take_draws(1);
}
PhiloxKey runtime::take_draws(std::uint64_t count) {
  std::lock_guard guard(runtime::state().random);
  PhiloxKey key = runtime::state().key;
  runtime::state().key.offset += count;
  return key;
}
PhiloxKey get_rng_state() {
  std::lock_guard guard(runtime::state().random);
  return runtime::state().key;
}
void set_rng_state(PhiloxKey key) {
  runtime::refuse_in_capture("set_rng_state", "the random numbers cannot be set anew in every run; seed them before or after the step");
  std::lock_guard guard(runtime::state().random);
  runtime::state().key = key;
}

}  // namespace tensorlite
