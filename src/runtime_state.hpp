// Private: the process-wide state of the library. One object, in runtime.cpp, never destroyed, so that tensors of static lifetime die
// quietly.
#pragma once

#include <tensorlite/detail/caching_allocator.hpp>
#include <tensorlite/device.hpp>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>

namespace tensorlite::runtime {

inline constexpr int kMaxLogical = 64;  ///< logical devices of one type

enum class LogLevel : std::uint8_t { error, warn, info, debug };
/// One line on stderr when the level is on: "tensorlite: warning: ...".
void log(LogLevel level, const std::string& text);
void read_log_environment();

/// One physical device and what the user has set for it.
struct Physical {
  PhysicalDevice id;
  DeviceType type = DeviceType::cpu;
  int ordinal = 0;  ///< the backend's own
  DeviceProperties properties;
  bool visible = true;
  bool growth = false;
  std::vector<LogicalDeviceConfiguration> slices;
};

class GraphMemory;
struct Recording;

/// One logical device: made at initialization, opened (context, pool) at first use.
struct Slot {
  Device device;
  const Backend* backend = nullptr;
  int physical = 0;       ///< the backend's own ordinal
  int number = 0;         ///< of its counters
  std::size_t limit = 0;  ///< bytes; 0: the default
  bool growth = true;
  std::atomic<bool> open{false};
  bool lost = false;  ///< in a child process forked after the device was opened
  std::unique_ptr<detail::CachingAllocator> pool;
  std::atomic<void*> last_stream{nullptr};  ///< that allocated or released

  std::mutex graph_mutex;
  std::vector<std::shared_ptr<GraphMemory>> graph_memories;  ///< of recorded graphs; see graph_memory.hpp
  std::atomic<int> graph_count{0};                           ///< of those
};

/// What can be switched at any time and every op reads: one word, one load.
enum Flag : std::uint32_t {
  kLogPlacement = 1,
  kSink = 2,
  kTime = 4,  ///< log level debug
  kObserved = kLogPlacement | kSink | kTime,
  kDeterministic = 8,
  kTf32 = 16,
  kAutotune = 32,
  kSoftPlacement = 64,
};

/// Counters of one thread, written by it alone, so that counting needs no atomic read-modify-write.
struct Counters {
  std::array<std::atomic<std::int64_t>, 2 * kMaxLogical> ops{};
  std::atomic<std::int64_t> copies{0}, copy_bytes{0};
};
inline void add(std::atomic<std::int64_t>& counter, std::int64_t n) {
  counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

/// Why an op runs where it runs.
enum class Reason : std::uint8_t { inputs, scope, automatic, given, soft_placement };

inline constexpr int kMaxPendingCopies = 8;
/// The op that place_op or creation_device last placed for this thread, until its kernel runs.
struct Pending {
  const char* op = "";
  Device device;
  Reason reason = Reason::inputs;
  int copies = 0;  ///< may exceed what copy[] holds
  std::array<PlacementEvent::Copy, kMaxPendingCopies> copy{};
};

/// All that belongs to one thread; trivially destructible, so that it outlives every thread_local tensor.
struct ThreadData {
  detail::ThreadState state;
  Pending pending;
  Counters* counters = nullptr;
  Recording* recording = nullptr;  ///< the step that the thread captures; see recording.hpp
};
ThreadData& thread_data();
inline Recording* recording() { return thread_data().recording; }
Counters& thread_counters();

struct State {
  std::atomic<bool> initialized{false};
  std::atomic<std::uint32_t> flags{0};
  std::atomic<LogLevel> log_level{LogLevel::warn};
  std::atomic<bool> log_placement_chosen{false};  ///< by a call, which then beats the environment
  std::atomic<PlacementPolicy> placement{PlacementPolicy::automatic};
  std::array<std::array<std::atomic<Slot*>, kMaxLogical>, 2> slots{};
  std::array<std::atomic<int>, 2> slot_count{};
  std::atomic<bool> forked{false};

  std::mutex mutex;  ///< configuration, discovery, initialization
  std::string initialized_by;
  bool cpu_found = false, gpu_searched = false;
  std::vector<Physical> cpus, gpus;
  const Backend* gpu_backend = nullptr;
  std::vector<Finding> loader_findings;  ///< where a plug-in was looked for
  std::vector<Finding> skipped_gpus;

  std::mutex opening;  ///< first use of a device
  std::vector<int> opened_gpus;

  std::mutex counting;  ///< the lists of counters
  std::vector<Counters*> all_counters, spare_counters;
  std::array<std::int64_t, 2 * kMaxLogical + 2> counter_baseline{};  ///< ops, copies, copy bytes at the last reset

  std::mutex observers;
  std::shared_ptr<const std::function<void(const PlacementEvent&)>> sink;
  std::vector<std::string> warned;  ///< "(op, device)" of soft placement

  std::mutex random;
  PhiloxKey key;
};
State& state();
inline bool has_flag(std::uint32_t flag) { return (state().flags.load(std::memory_order_relaxed) & flag) != 0; }
void set_flag(Flag flag, bool on);

// --- devices

/// Finds, once, the plug-in and its GPUs. Call with state().mutex held.
void discover_cpus(State& s);
void discover_gpus(State& s);
/// "", "CPU", "GPU" in any case, or something else.
enum class TypeFilter : std::uint8_t { all, cpu, gpu, unknown };
TypeFilter filter_of(std::string_view type);
/// The physical devices of a filter, in order; finds them first. Call with the mutex held.
std::vector<Physical*> physicals(State& s, TypeFilter filter);
std::string list_of(const std::vector<Physical*>& devices);
/// The physical device that a caller names. Throws ValueError. Call with the mutex held.
Physical& find_physical(State& s, const char* call, const PhysicalDevice& device);
/// Loads the GPU plug-in; null with reasons in `findings`.
const Backend* load_gpu_backend(std::vector<Finding>& findings);
/// Whether TENSORLITE_FORCE_GPU_ALLOW_GROWTH or TF_FORCE_GPU_ALLOW_GROWTH says so.
std::optional<bool> forced_growth();

/// Makes the logical devices and freezes their settings; `by` is remembered for error texts ("op MatMul").
void initialize(const char* kind, const char* by);
inline void ensure_initialized(const char* kind, const char* by) {
  if (!state().initialized.load(std::memory_order_acquire)) initialize(kind, by);
}
inline Slot* find_slot(DeviceType type, std::int64_t index) {
  if (index < 0 || index >= kMaxLogical) return nullptr;
  return state().slots[static_cast<std::size_t>(type)][static_cast<std::size_t>(index)].load(std::memory_order_acquire);
}
inline Slot* find_slot(Device device) { return find_slot(device.type, device.index); }
/// The slot, opened. Throws DeviceUnavailableError.
Slot& open_slot(const char* op, Device device);
[[noreturn]] void throw_absent(std::string_view op, const std::string& wanted);
/// "CPU:0, GPU:0", and why there is no GPU when there is none.
std::string present_devices();
/// Free and total bytes of the device as its driver sees them.
std::pair<std::int64_t, std::int64_t> driver_memory(const Slot& slot);

}  // namespace tensorlite::runtime
