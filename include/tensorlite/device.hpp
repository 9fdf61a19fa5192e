// L2: choose, watch and limit devices: config::, DeviceScope, debugging::, memory statistics, the random seed.
// The contract is TensorFlow's (names, defaults, errors); where it differs the doc comment says so.
#pragma once

#include <tensorlite/backend.hpp>

#include <array>
#include <functional>
#include <optional>

namespace tensorlite {

// --------------------------------------------------------------------------------------------------------------------- names

/// A parsed device name: each part may be missing ("no constraint").
/// Text: ["/"] part {"/" part}; part = job:ID | replica:N | task:N | ["device:"] TYPE [":" (N | "*")]; TYPE in any case; "" = no
/// constraint.
struct DeviceSpec {
  std::optional<DeviceType> type;
  std::optional<int> index;
  bool any_index = false;  ///< written as '*'
  /// Throws ValueError with the reason: two types, a negative or overflowing index, an unknown keyword, trailing junk, a foreign job.
  TL_API static DeviceSpec parse(std::string_view text);
  /// This spec's fields over `outer`'s; a new type resets the index.
  TL_API DeviceSpec merged_over(const DeviceSpec& outer) const;
};

/// "/job:localhost/replica:0/task:0/device:GPU:0"
TL_API std::string canonical_name(Device device);
/// "GPU:0"
TL_API std::string short_name(Device device);

struct PhysicalDevice {
  std::string name;         ///< "/physical_device:GPU:0"
  std::string device_type;  ///< "GPU"
  friend bool operator==(const PhysicalDevice&, const PhysicalDevice&) = default;
};
struct LogicalDevice {
  std::string name;  ///< "/device:GPU:0"
  std::string device_type;
  friend bool operator==(const LogicalDevice&, const LogicalDevice&) = default;
};

/// One slice of a physical device.
struct LogicalDeviceConfiguration {
  std::optional<std::int64_t> memory_limit;  ///< MiB; a GPU must have one
  friend bool operator==(const LogicalDeviceConfiguration&, const LogicalDeviceConfiguration&) = default;
};

/// All in bytes but num_allocs.
struct MemoryInfo {
  std::int64_t current = 0, peak = 0, reserved = 0, peak_reserved = 0, limit = 0, largest_free_block = 0, num_allocs = 0;
};

/// Where an op runs that has no scope around it.
enum class PlacementPolicy : std::uint8_t { automatic, follow_inputs, explicit_only };
/// What happens when an input must be copied to the op's device.
enum class DevicePolicy : std::uint8_t { silent, warn, error };
/// highest: float32 products are float32; tf32: a GPU may round their operands to TF32.
enum class Float32Precision : std::uint8_t { highest, tf32 };

namespace config {
/// All CPUs and GPUs the driver shows this process, whatever is visible. Allocates nothing and creates no context. Unknown type: empty.
TL_API std::vector<PhysicalDevice> list_physical_devices(std::string_view type = "");
/// Initializes the devices.
TL_API std::vector<LogicalDevice> list_logical_devices(std::string_view type = "");
/// Replaces the list of that type (no type: the whole list). Throws ValueError, AlreadyInitializedError.
TL_API void set_visible_devices(const std::vector<PhysicalDevice>& devices, std::string_view type = "");
TL_API std::vector<PhysicalDevice> get_visible_devices(std::string_view type = "");
/// Default false: a GPU's pool takes its limit at first use. Throws ValueError (CPU, unknown), AlreadyInitializedError.
TL_API void set_memory_growth(const PhysicalDevice& device, bool enable);
TL_API bool get_memory_growth(const PhysicalDevice& device);
/// One logical device per element. Throws ValueError, AlreadyInitializedError.
TL_API void set_logical_device_configuration(const PhysicalDevice& device, const std::vector<LogicalDeviceConfiguration>& slices);
TL_API std::vector<LogicalDeviceConfiguration> get_logical_device_configuration(const PhysicalDevice& device);
/// Default false: a device that is not there is an error. True: same type first, then the CPU.
TL_API void set_soft_device_placement(bool enable);
TL_API bool get_soft_device_placement();
TL_API void set_device_policy(DevicePolicy policy);  ///< of the calling thread
TL_API DevicePolicy get_device_policy();
TL_API void set_placement_policy(PlacementPolicy policy);
TL_API PlacementPolicy get_placement_policy();
/// Throws ValueError: malformed name, no device or several.
TL_API MemoryInfo get_memory_info(std::string_view device);
TL_API void reset_memory_stats(std::string_view device);
/// Returns wholly free memory to the driver; how many bytes.
TL_API std::int64_t trim(std::string_view device);
/// device_name, compute_capability, total_memory, pci_bus_id, uuid, nvidia_smi_index, multiprocessors, driver_version, runtime_version; a
/// CPU: device_name, instruction_set, cores_usable, total_memory. As (key, text) pairs.
TL_API std::vector<std::pair<std::string, std::string>> get_device_details(const PhysicalDevice& device);
/// version, library (the file), compiler, instruction_sets (compiled in and usable here). As (key, text) pairs.
TL_API std::vector<std::pair<std::string, std::string>> get_build_details();
/// A finding per layer that a GPU needs, from the hardware to the visibility. Never throws.
TL_API std::vector<Finding> diagnose_gpus();
/// Throws DeviceUnavailableError with that diagnosis when there is no usable GPU.
TL_API void require_gpu();
TL_API void set_float32_precision(Float32Precision precision);
TL_API Float32Precision get_float32_precision();
TL_API void set_deterministic(bool enable);  ///< the same bits in every run: every op is deterministic or throws; no autotuning
TL_API bool get_deterministic();
/// Default false. True: the first product or convolution of a shape on a GPU measures several algorithms and keeps the fastest (10 to
/// 100 ms). Convolutions in float32 without tf32 always do, as cuDNN guesses badly there. Nothing is measured in deterministic mode.
TL_API void set_autotune(bool enable);
TL_API bool get_autotune();
/// CPU threads per op. 0 in set: back to the default (OMP_NUM_THREADS, affinity, cgroup quota).
TL_API void set_num_threads(int count);
TL_API int get_num_threads();
/// Runs task(argument, i) for every i in [0, tasks), in any order and thread, and returns when all are done.
using ParallelFor = void (*)(std::int64_t tasks, void (*task)(void* argument, std::int64_t i), void* argument);
/// Lets the host program's thread pool do the CPU's work, get_num_threads() tasks at a time at most; null: back to the library's own
/// threads.
TL_API void set_parallel_for(ParallelFor run);
}  // namespace config

// -------------------------------------------------------------------------------------------------------------------- scopes

namespace detail {

/// The innermost scope of a thread; no type: automatic placement.
struct ScopeState {
  bool has_scope = false;
  bool soft_fallback = false;  ///< the scope asked for a device that is not there; scope_device is its stand-in
  Device scope_device;
  DeviceSpec scope_spec;
};
struct AutocastState;
/// State of the calling thread that every op reads. Lives in src/runtime.cpp.
struct ThreadState : ScopeState {
  bool grad_enabled = true;
  AutocastState* autocast = nullptr;  ///< of the innermost Autocast
  DevicePolicy device_policy = DevicePolicy::silent;
  void restore_scope(const ScopeState& saved) { static_cast<ScopeState&>(*this) = saved; }
};
TL_API ThreadState& thread_state();

}  // namespace detail

/// Runs and creates on one device while it lives; nests (fields merge); thread-local; restored by unwinding.
/// `DeviceScope none(std::nullopt)` is automatic placement again. Throws ValueError (malformed) or DeviceUnavailableError (absent, listing
/// what is there) at construction. Initializes the devices.
class TL_API DeviceScope {
 public:
  explicit DeviceScope(std::string_view name);
  explicit DeviceScope(Device device);
  explicit DeviceScope(std::nullopt_t);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  detail::ScopeState saved_;
};

/// The calling thread's scope, to be entered in another thread: `auto s = ScopeSnapshot(); std::thread([s] { auto guard = s.enter(); ...
/// })`.
class TL_API ScopeSnapshot {
 public:
  ScopeSnapshot();
  class TL_API Guard {
   public:
    ~Guard();
    Guard(const Guard&) = delete;

   private:
    friend class ScopeSnapshot;
    explicit Guard(const ScopeSnapshot& snapshot);
    detail::ScopeState saved_;
  };
  [[nodiscard]] Guard enter() const { return Guard(*this); }

 private:
  detail::ScopeState scope_;
};

/// Waits for all work of the device (a no-op on a CPU). Throws BackendError when a kernel failed.
TL_API void synchronize(Device device);
TL_API void synchronize();  ///< all devices in use

/// Seeds the random numbers of the process (default 0): weights, dropout masks, shuffles. The same on every device.
TL_API void manual_seed(std::uint64_t seed);
/// The next draw's key; `draws` successive offsets are taken.
TL_API PhiloxKey next_philox_key();
/// Seed and next offset, to be saved in a checkpoint and restored.
TL_API PhiloxKey get_rng_state();
TL_API void set_rng_state(PhiloxKey state);

// ----------------------------------------------------------------------------------------------------------------- debugging

/// One op placed.
struct PlacementEvent {
  std::string op;
  Device device;
  std::optional<Device> requested;  ///< the scope's, when it was another
  std::string reason;               ///< "scope", "inputs", "automatic", "given" (by the caller), "soft placement: not present"
  struct Copy {
    int input;
    Device from;
    std::int64_t bytes;
  };
  std::vector<Copy> copies;
  std::vector<DType> dtypes;
  std::vector<Dims> shapes;
};

struct PlacementStats {
  std::vector<std::pair<Device, std::int64_t>> ops_per_device;
  std::int64_t implicit_copies = 0;
  std::int64_t implicit_copy_bytes = 0;
};

namespace debugging {
/// One line per op on stderr: "Executing op MatMul in device /job:localhost/replica:0/task:0/device:GPU:0". Any time.
TL_API void set_log_device_placement(bool enable);
TL_API bool get_log_device_placement();
/// Called with every placement, apart from the log line; null: off. The sink may not call ops.
TL_API void set_log_sink(std::function<void(const PlacementEvent&)> sink);
TL_API PlacementStats placement_stats();
TL_API void reset_placement_stats();
}  // namespace debugging

// -------------------------------------------------------------------------------------------- what tensors and ops need (detail)
namespace detail {

class Storage;

/// The device that a creation function uses: the scope's, else GPU:0 when there is a usable one, else CPU:0. Initializes.
TL_API Device creation_device(const char* op);
/// Throws DeviceUnavailableError, listing what is there, unless `device` exists. Initializes.
TL_API void require_device(const char* op, Device device);

/// The device that a name asks for: throws ValueError (malformed) or DeviceUnavailableError; under soft placement the stand-in of an
/// absent one. "" is creation_device. Initializes.
TL_API Device device_named(const char* op, std::string_view name);

/// The device of an op with these inputs by the rules of placement (scope, policy, inputs), without copying anything. Inputs on the op's
/// device need no copy; others must be copied (see record_copy). Throws DeviceMismatchError under explicit_only.
TL_API Device place_op(const char* op, const Device* inputs, int count);
/// Counts an implicit copy for the op to come, applies the thread's DevicePolicy (may warn or throw) and keeps it for the log line.
TL_API void record_copy(const char* op, int input, Device from, Device to, std::int64_t bytes);

/// Memory from the device's pool; throws OutOfMemoryError. 0 bytes: null.
TL_API void* allocate(Device device, std::size_t bytes);
TL_API void release(Device device, void* data);
/// Copies bytes between devices (or within one) for `op`. Throws CaptureError while the thread captures a step, within its device excepted.
TL_API void copy_bytes(void* to, Device to_device, const void* from, Device from_device, std::size_t bytes, const char* op = "copy");
}  // namespace detail

}  // namespace tensorlite
