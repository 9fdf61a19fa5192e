// A plug-in with n pretended GPUs: memory of their own that the host may not touch, the CPU kernels underneath, every pointer checked,
// and faults on demand. It makes the rules of placement, visibility and memory testable on a machine without a GPU.
//
// A device address is reserved and never accessible; the bytes live in another mapping (the alias) that only kernels and copies use.
// So host code that touches device memory crashes, and a kernel that gets a host pointer is refused.
#include "simulated_gpu.hpp"

#include "cpu/backend.hpp"

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace {

using namespace tensorlite;
using detail::concat;

constexpr std::int64_t kMib = 1 << 20, kContextBytes = 8 * kMib;
constexpr int kMaxDevices = 8;

// ----------------------------------------------------------------------------------------------------------------------- devices

struct Region {
  std::size_t size = 0;
  char* alias = nullptr;
  int physical = 0;
};

struct SimulatedDevice {
  std::atomic<std::int64_t> used{0}, kernels{0};
  std::atomic<int> contexts{0};
  std::string failed_kernel;     ///< its error waits for the next synchronization
  std::exception_ptr bad_index;  ///< likewise, or for the next kernel
};

struct Simulation {
  int count = 2;
  std::int64_t bytes = 256 * kMib;
  std::array<SimulatedDevice, kMaxDevices> devices;
  std::shared_mutex mutex;                  ///< regions
  std::map<char*, Region> regions;          ///< by device address
  std::map<char*, char*> address_of_alias;  ///< of each region
  std::mutex fault_mutex;
  std::map<std::string, std::string> faults;
  std::atomic<void* (*)(Device, std::size_t)> allocate{nullptr};  ///< the core's, from the last kernel call
  std::atomic<void (*)(Device, void*)> release{nullptr};

  Simulation() {
    int n = 0;
    long long mib = 0;
    const char* text = std::getenv("TENSORLITE_SIMULATED_GPUS");
    if (text && std::sscanf(text, "%dx%lld", &n, &mib) == 2 && n >= 0 && n <= kMaxDevices && mib > 0) {
      count = n;
      bytes = mib * kMib;
    }
    if (const char* faults_text = std::getenv("TENSORLITE_SIMULATED_FAULTS")) add_faults(faults_text);
  }
  void add_faults(const std::string& text) {
    std::lock_guard guard(fault_mutex);
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      const std::string fault = text.substr(begin, end - begin);
      const std::size_t equals = fault.find('=');
      faults[fault.substr(0, equals)] = equals == std::string::npos ? "" : fault.substr(equals + 1);
      begin = end + 1;
    }
  }
  bool has(const char* fault) {
    std::lock_guard guard(fault_mutex);
    return faults.count(fault) != 0;
  }
  bool is(const char* fault, const std::string& value) {
    std::lock_guard guard(fault_mutex);
    const auto found = faults.find(fault);
    return found != faults.end() && found->second == value;
  }
  /// Whether the fault strikes now; it strikes once.
  bool strikes(const char* fault, const std::string& value) {
    std::lock_guard guard(fault_mutex);
    const auto found = faults.find(fault);
    if (found == faults.end() || found->second != value) return false;
    faults.erase(found);
    return true;
  }
  /// Counts a fault's number down; true when it reaches zero.
  bool counts_down(const char* fault) {
    std::lock_guard guard(fault_mutex);
    const auto found = faults.find(fault);
    if (found == faults.end()) return false;
    const int left = std::atoi(found->second.c_str()) - 1;
    if (left > 0) {
      found->second = std::to_string(left);
      return false;
    }
    faults.erase(found);
    return true;
  }
};
Simulation& simulation() {
  static Simulation& made = *new Simulation;
  return made;
}

// ------------------------------------------------------------------------------------------------------------------------- memory

void* map_anonymous(std::size_t bytes, int protection) {
  void* data = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return data == MAP_FAILED ? nullptr : data;
}

void* map_memory(int physical, std::size_t bytes, std::size_t) {
  Simulation& s = simulation();
  SimulatedDevice& device = s.devices[static_cast<std::size_t>(physical)];
  if (s.counts_down("map_failure")) return nullptr;
  if (device.used.load() + static_cast<std::int64_t>(bytes) > s.bytes) return nullptr;
  char* address = static_cast<char*>(map_anonymous(bytes, PROT_NONE));
  char* alias = static_cast<char*>(map_anonymous(bytes, PROT_READ | PROT_WRITE));
  if (!address || !alias) return nullptr;
  device.used += static_cast<std::int64_t>(bytes);
  std::unique_lock guard(s.mutex);
  s.regions[address] = {bytes, alias, physical};
  s.address_of_alias[alias] = address;
  return address;
}

void unmap_memory(int physical, void* data, std::size_t bytes) {
  Simulation& s = simulation();
  std::unique_lock guard(s.mutex);
  const auto found = s.regions.find(static_cast<char*>(data));
  if (found == s.regions.end() || found->second.size != bytes || found->second.physical != physical)
    throw BackendError("simulated GPU", "unmap_memory got another region than map_memory gave");
  munmap(found->second.alias, bytes);
  munmap(data, bytes);
  s.address_of_alias.erase(found->second.alias);
  s.regions.erase(found);
  s.devices[static_cast<std::size_t>(physical)].used -= static_cast<std::int64_t>(bytes);
}

/// The alias of [data + low, data + high) on a device; throws unless all of it is that device's memory.
char* alias_of(const char* op, int physical, const void* data, std::int64_t low, std::int64_t high) {
  Simulation& s = simulation();
  const char* begin = static_cast<const char*>(data) + low;
  std::shared_lock guard(s.mutex);
  auto found = s.regions.upper_bound(const_cast<char*>(begin));
  if (found == s.regions.begin()) throw BackendError(op, "a pointer given to the device is not device memory");
  --found;
  const Region& region = found->second;
  const std::int64_t at = begin - found->first, size = static_cast<std::int64_t>(region.size);
  if (at >= size) throw BackendError(op, "a pointer given to the device is not device memory");
  if (region.physical != physical) throw BackendError(op, concat("device ", physical, " was given memory of device ", region.physical));
  if (at + (high - low) > size) throw BackendError(op, "a view reaches past the end of its device memory");
  return region.alias + at - low;
}

/// The device address of an alias that alias_of gave.
void* address_of(void* alias) {
  Simulation& s = simulation();
  std::shared_lock guard(s.mutex);
  auto found = --s.address_of_alias.upper_bound(static_cast<char*>(alias));
  return found->second + (static_cast<char*>(alias) - found->first);
}

void memory_info(int physical, std::int64_t& free, std::int64_t& total) {
  total = simulation().bytes;
  free = total - simulation().devices[static_cast<std::size_t>(physical)].used.load();
}

// ------------------------------------------------------------------------------------------------------------------------- graphs

/// Kernel calls, with copies of their arguments.
struct Graph {
  int physical = 0;
  int optimizer_steps = 0;
  std::vector<std::function<void(const GraphInputs&)>> calls;
};
thread_local Graph* t_recording = nullptr;

/// As a driver would: nothing waits while the thread records.
void refuse_while_recording(const char* what, int physical) {
  if (t_recording && t_recording->physical == physical)
    throw BackendError(what, concat("not permitted while work of simulated device ", physical, " is recorded"));
}

/// An IndexError of an earlier kernel shows now: a GPU is not waited for.
void throw_bad_index(int physical) {
  std::exception_ptr error;
  {
    std::lock_guard guard(simulation().fault_mutex);
    error = std::exchange(simulation().devices[static_cast<std::size_t>(physical)].bad_index, nullptr);
  }
  if (error) std::rethrow_exception(error);
}

void synchronize(int physical) {
  refuse_while_recording("synchronize", physical);
  throw_bad_index(physical);
  std::string op;
  {
    std::lock_guard guard(simulation().fault_mutex);
    op.swap(simulation().devices[static_cast<std::size_t>(physical)].failed_kernel);
  }
  if (op.empty()) return;
  throw BackendError(op, concat("its kernel failed on simulated device ", physical, ": illegal memory access"));
}

void copy_bytes(void* to, int to_physical, const void* from, int from_physical, std::size_t bytes, void*) {
  const auto size = static_cast<std::int64_t>(bytes);
  refuse_while_recording("copy", to_physical >= 0 ? to_physical : from_physical);
  if (from_physical >= 0) synchronize(from_physical);
  const void* source = from_physical < 0 ? from : alias_of("copy", from_physical, from, 0, size);
  void* target = to_physical < 0 ? to : alias_of("copy", to_physical, to, 0, size);
  std::memmove(target, source, bytes);
}

// ------------------------------------------------------------------------------------------------------------------------ kernels

/// The view on the alias. Every byte that it can reach must be memory of the context's device.
View translate(const Context& context, const View& view) {
  if (!view || view.numel() == 0) return view;
  if (view.device != context.device)
    throw BackendError(context.op, concat("a kernel on ", context.device, " was given a view of ", view.device));
  std::int64_t low = 0, high = 0;
  for (int i = 0; i < view.dim(); ++i) {
    const std::int64_t reach = (view.size(i) - 1) * view.stride(i);
    (reach < 0 ? low : high) += reach;
  }
  View alias = view;
  alias.data = alias_of(context.op, context.physical, view.data, low * size_of(view.dtype), (high + 1) * size_of(view.dtype));
  return alias;
}
std::vector<View> translate(const Context& context, std::span<const View> views) {
  std::vector<View> aliases;
  for (const View& view : views) aliases.push_back(translate(context, view));
  return aliases;
}
template <class Other> const Other& translate(const Context&, const Other& other) { return other; }

/// What a CPU kernel may know: its scratch memory comes from the device's pool, too.
Context translate(const Context& context) {
  Simulation& s = simulation();
  s.allocate = context.allocate;
  s.release = context.release;
  Context alias = context;
  alias.allocate = [](Device device, std::size_t bytes) -> void* {
    char* data = static_cast<char*>(simulation().allocate.load()(device, bytes));
    std::shared_lock guard(simulation().mutex);
    const auto region = --simulation().regions.upper_bound(data);
    return region->second.alias + (data - region->first);
  };
  alias.release = [](Device device, void* data) { simulation().release.load()(device, address_of(data)); };
  return alias;
}

/// What a call keeps of an argument, and what it gives the kernel when the graph runs.
template <class T> struct Kept {
  T value;
  Kept(Graph&, const T& argument) : value(argument) {}
  const T& get(const GraphInputs&) const { return value; }
};
template <> struct Kept<std::span<const View>> {
  std::vector<View> views;
  Kept(Graph&, std::span<const View> argument) : views(argument.begin(), argument.end()) {}
  std::span<const View> get(const GraphInputs&) const { return views; }
};
template <> struct Kept<PhiloxKey> {
  std::uint64_t offset;
  Kept(Graph&, const PhiloxKey& argument) : offset(argument.offset) {}
  PhiloxKey get(const GraphInputs& inputs) const { return {inputs.key.seed, inputs.key.offset + offset}; }
};
template <> struct Kept<OptimizerParams> {
  std::size_t step;
  Kept(Graph& graph, const OptimizerParams&) : step(static_cast<std::size_t>(graph.optimizer_steps++)) {}
  OptimizerParams get(const GraphInputs& inputs) const { return inputs.optimizer_steps[step]; }
};

/// Whether the kernel runs: a fault may strike instead.
bool begins(const Context& context) {
  Simulation& s = simulation();
  SimulatedDevice& device = s.devices[static_cast<std::size_t>(context.physical)];
  if (device.contexts.load() == 0) throw BackendError(context.op, "a kernel was called before the device was initialized");
  ++device.kernels;
  if (std::strncmp(context.op, "Conv2D", 6) == 0 && s.has("cudnn_mismatch"))
    throw BackendError(context.op,
                       "cuDNN: built for 9.10.2, loaded 9.10.2, but libcudnn_graph.so.9 found is 9.1.0; install the parts of one version");
  if (!s.strikes("kernel_error", context.op)) return true;
  std::lock_guard guard(s.fault_mutex);
  device.failed_kernel = context.op;
  return false;
}

template <auto Kernel> struct Wrapped;
template <class... Params, void (*KernelTable::*Kernel)(const Context&, Params...)> struct Wrapped<Kernel> {
  static void call(const Context& context, Params... arguments) {
    if (context.graph) return record(context, arguments...);
    throw_bad_index(context.physical);
    run(context, arguments...);
  }
  static void run(const Context& context, Params... arguments) {
    if (!begins(context)) return;
    try {
      (cpu::backend().kernels.*Kernel)(translate(context), translate(context, arguments)...);
    } catch (const IndexError&) {
      std::lock_guard guard(simulation().fault_mutex);
      std::exception_ptr& first = simulation().devices[static_cast<std::size_t>(context.physical)].bad_index;
      if (!first) first = std::current_exception();
    }
  }
  static void record(const Context& context, Params... arguments) {
    Graph& graph = *static_cast<Graph*>(context.graph);
    if (&graph != t_recording) throw BackendError(context.op, "a kernel was recorded into a graph of another thread");
    (static_cast<void>(translate(context, arguments)), ...);  // the pointers must be good now
    Context later = context;
    later.graph = nullptr;
    graph.calls.push_back(
        [later, kept = std::tuple<Kept<std::remove_cvref_t<Params>>...>(Kept<std::remove_cvref_t<Params>>(graph, arguments)...)](
            const GraphInputs& inputs) { std::apply([&](const auto&... each) { run(later, each.get(inputs)...); }, kept); });
  }
};

// ------------------------------------------------------------------------------------------------------------------------ backend

int device_count() {
  Simulation& s = simulation();
  return s.has("no_driver") || s.has("old_driver") ? 0 : s.count;
}

void properties(int physical, DeviceProperties& out) {
  out = DeviceProperties{};
  const bool old = simulation().is("old_gpu", std::to_string(physical));
  std::snprintf(out.name, sizeof out.name, "Simulated GPU");
  std::snprintf(out.uuid, sizeof out.uuid, "GPU-51a1a7ed-0000-0000-0000-%012d", physical);
  std::snprintf(out.pci_bus_id, sizeof out.pci_bus_id, "0000:%02d:00.0", physical + 1);
  out.compute_major = old ? 3 : 9;
  out.compute_minor = old ? 5 : 0;
  out.multiprocessors = 8;
  out.driver_version = out.runtime_version = 13000;
  out.total_memory = simulation().bytes;
  out.usable = !old;
  if (old) std::snprintf(out.reason, sizeof out.reason, "compute capability 3.5 is not among the compiled ones: 8.0, 9.0, 10.0");
}

void diagnose(std::vector<Finding>& out) {
  Simulation& s = simulation();
  Finding driver{.layer = "driver", .ok = true, .built_for = "13.0", .found = "13.0", .path = "", .problem = "", .remedy = ""};
  if (s.has("no_driver"))
    driver = {.layer = "driver",
              .ok = false,
              .built_for = "13.0",
              .found = "none",
              .path = "",
              .problem = "No NVIDIA driver is loaded.",
              .remedy = "Install the driver."};
  if (s.has("old_driver"))
    driver = {.layer = "driver",
              .ok = false,
              .built_for = "13.0",
              .found = "11.4",
              .path = "",
              .problem = "The driver serves CUDA 11.4, the runtime is 13.0.",
              .remedy = "Update the driver."};
  out.push_back(driver);
  if (s.has("cudnn_mismatch"))
    out.push_back({.layer = "cuDNN graph",
                   .ok = false,
                   .built_for = "9.10.2",
                   .found = "9.1.0",
                   .path = "libcudnn_graph.so.9",
                   .problem = "It is of another version than cuDNN.",
                   .remedy = "Install the parts of one version."});
  for (int i = 0; i < device_count(); ++i) {
    DeviceProperties p;
    properties(i, p);
    out.push_back({.layer = concat("GPU ", i),
                   .ok = p.usable,
                   .built_for = "8.0, 9.0, 10.0",
                   .found = concat(p.compute_major, ".", p.compute_minor),
                   .path = "",
                   .problem = p.usable ? "" : concat("This GPU is not used: ", p.name, ", ", p.reason, "."),
                   .remedy = p.usable ? "" : "Build the plug-in for this GPU's capability."});
  }
}

void initialize(int physical) {
  SimulatedDevice& device = simulation().devices[static_cast<std::size_t>(physical)];
  ++device.contexts;
  device.used += kContextBytes;
}

void* begin_graph(int physical) {
  if (t_recording) throw BackendError("capture", "the thread records already");
  return t_recording = new Graph{.physical = physical, .optimizer_steps = 0, .calls = {}};
}
void end_graph(void*) {
  t_recording = nullptr;
  if (simulation().strikes("end_graph_failure", "")) throw BackendError("capture", "the simulated driver makes no graph");
}
void run_graph(void* graph, const GraphInputs& inputs) {
  for (const auto& call : static_cast<Graph*>(graph)->calls) call(inputs);
  throw_bad_index(static_cast<Graph*>(graph)->physical);
}
void destroy_graph(void* graph) {
  if (t_recording == graph) t_recording = nullptr;
  delete static_cast<Graph*>(graph);
}

Backend make_backend() {
  Backend backend;
  backend.abi_hash = simulation().has("wrong_abi") ? ~kAbiHash : kAbiHash;
  backend.name = "simulated GPU";
#define TL_WRAPPED(name, parameters) .name = &Wrapped<&KernelTable::name>::call,
  backend.kernels = {TL_KERNELS(TL_WRAPPED)};
  backend.device_count = &device_count;
  backend.properties = &properties;
  backend.diagnose = &diagnose;
  backend.initialize = &initialize;
  backend.memory_info = &memory_info;
  backend.map_memory = &map_memory;
  backend.unmap_memory = &unmap_memory;
  backend.region_granularity = std::size_t{1} << 20;
  backend.copy_bytes = &copy_bytes;
  backend.current_stream = [](int) -> void* { return nullptr; };
  backend.synchronize = &synchronize;
  backend.begin_graph = &begin_graph;
  backend.end_graph = &end_graph;
  backend.run_graph = &run_graph;
  backend.destroy_graph = &destroy_graph;
  return backend;
}

}  // namespace

extern "C" {
TL_API const tensorlite::Backend* tensorlite_backend(const char** why) {
  if (simulation().has("missing_library")) {
    *why = "libcublasLt.so.13: cannot open shared object file: No such file or directory";
    return nullptr;
  }
  static const Backend& backend = *new Backend(make_backend());
  return &backend;
}
TL_API void simulated_gpu_fault(const char* faults) { simulation().add_faults(faults); }
TL_API int simulated_gpu_contexts(int physical) { return simulation().devices[static_cast<std::size_t>(physical)].contexts.load(); }
TL_API std::int64_t simulated_gpu_used(int physical) { return simulation().devices[static_cast<std::size_t>(physical)].used.load(); }
TL_API std::int64_t simulated_gpu_kernels(int physical) { return simulation().devices[static_cast<std::size_t>(physical)].kernels.load(); }
}
