// The plug-in's entry, and what is known of devices and libraries before anything is used.
#include "driver.hpp"
#include "graph.hpp"
#include "state.hpp"

#include <cstdio>
#include <cstring>

#if defined(TL_HAS_CUDNN)
#include <cudnn_version.h>
#endif
#include <cublasLt.h>

namespace tensorlite::cuda {
namespace {

std::string version_text(int version) { return detail::concat(version / 1000, ".", version % 1000 / 10); }

/// A driver serves the runtimes of its own major version and older ones.
bool driver_is_new_enough() { return driver().version >= CUDART_VERSION / 1000 * 1000; }

int attribute(CUdevice device, CUdevice_attribute which) {
  int value = 0;
  driver().device_attribute(&value, which, device);
  return value;
}

Finding driver_finding() {
  Finding finding{.layer = "driver", .built_for = version_text(CUDART_VERSION), .path = driver().library.path()};
  const Driver& d = driver();
  if (d.version) finding.found = version_text(d.version);
  if (!d.library) {
    finding.problem = "There is no NVIDIA driver: " + d.library.problem() + ".";
    finding.remedy = "Install the NVIDIA driver (nvidia-smi then lists the GPUs); in a container start it with --gpus all.";
  } else if (!d.library.complete()) {
    finding.problem = "The driver is too old: " + d.library.problem() + ".";
    finding.remedy = "Install a driver for CUDA " + version_text(CUDART_VERSION / 1000 * 1000) + " or newer.";
  } else if (!driver_is_new_enough()) {
    finding.problem =
        "The driver serves CUDA " + version_text(d.version) + ", this library was built with CUDA " + version_text(CUDART_VERSION) + ".";
    finding.remedy = "Install a driver for CUDA " + version_text(CUDART_VERSION / 1000 * 1000) + " or newer.";
  } else if (d.status != CUDA_SUCCESS) {
    finding.problem = "The driver does not start: " + d.text(d.status) + ".";
    finding.remedy = "Run nvidia-smi; a driver that was just updated needs a restart, and CUDA_VISIBLE_DEVICES may hide every GPU.";
  } else if (d.count == 0) {
    finding.problem = "The driver shows no GPU to this process.";
    finding.remedy = "Run nvidia-smi, and look whether CUDA_VISIBLE_DEVICES hides every GPU.";
  }
  finding.ok = finding.problem.empty();
  return finding;
}

Finding cublas_finding() {
  Finding finding{.layer = "cuBLAS", .built_for = detail::concat(CUBLAS_VER_MAJOR, ".", CUBLAS_VER_MINOR, ".", CUBLAS_VER_PATCH)};
  Library library{"libcublasLt.so.13"};
  finding.path = library.path();
  decltype(&cublasLtGetVersion) get_version = nullptr;
  library.resolve(get_version, "cublasLtGetVersion");
  if (get_version) {
    const std::size_t version = get_version();
    finding.found = detail::concat(version / 10000, ".", version / 100 % 100, ".", version % 100);
  } else {
    finding.ok = false;
    finding.problem = "cuBLAS could not be opened: " + library.problem() + ".";
    finding.remedy =
        "Install the CUDA toolkit's cuBLAS 13 or add its folder to LD_LIBRARY_PATH; until then matrix products use slower kernels.";
  }
  return finding;
}

#if defined(TL_HAS_CUDNN)
/// The part's version is the ending of its file's name.
Finding cudnn_part_finding(const char* part) {
  const std::string name = detail::concat("libcudnn", part[0] ? "_" : "", part, ".so.9");
  Finding finding{.layer = detail::concat("cuDNN", part[0] ? " " : "", part),
                  .built_for = detail::concat(CUDNN_MAJOR, ".", CUDNN_MINOR, ".", CUDNN_PATCHLEVEL)};
  Library library{name.c_str()};
  finding.path = library.path();
  if (!library) {
    finding.ok = false;
    finding.problem = name + " could not be opened: " + library.problem() + ".";
    finding.remedy = "Install all parts of one cuDNN 9 or add its folder to LD_LIBRARY_PATH; until then convolutions use slower kernels.";
    return finding;
  }
  const auto at = finding.path.rfind(".so.");
  if (at != std::string::npos) finding.found = finding.path.substr(at + 4);
  std::size_t (*get_version)() = nullptr;
  if (!part[0]) library.resolve(get_version, "cudnnGetVersion");
  if (get_version) {
    const std::size_t version = get_version();
    finding.found = detail::concat(version / 10000, ".", version / 100 % 100, ".", version % 100);
  }
  return finding;
}

void add_cudnn(std::vector<Finding>& out) {
  std::string main_version;
  for (const char* part : {"", "graph", "ops", "cnn", "heuristic", "engines_precompiled", "engines_runtime_compiled"}) {
    Finding finding = cudnn_part_finding(part);
    if (!part[0]) main_version = finding.found;
    const bool full = finding.found.find('.') != std::string::npos;
    if (finding.ok && full && finding.found != main_version) {
      finding.ok = false;
      finding.problem = "This part of cuDNN is version " + finding.found + ", the library itself " + main_version + ".";
      finding.remedy = "Keep one cuDNN on the library path: remove " + finding.path + " or put the right folder first in LD_LIBRARY_PATH.";
    }
    out.push_back(std::move(finding));
  }
}
#else
void add_cudnn(std::vector<Finding>& out) {
  out.push_back({.layer = "cuDNN",
                 .ok = false,
                 .built_for = "none",
                 .problem = "This library was built without cuDNN's headers.",
                 .remedy = "Rebuild with cuDNN 9 installed; until then convolutions use slower kernels."});
}
#endif

}  // namespace

int device_count() { return driver().usable() && driver_is_new_enough() ? std::min(driver().count, kMaxPhysical) : 0; }

void device_properties(int physical, DeviceProperties& out) {
  TL_CHECK(physical >= 0 && physical < device_count(), DeviceUnavailableError, "cuda", "there is no GPU ", physical, "; the driver shows ",
           device_count());
  Driver& d = driver();
  CUdevice device = 0;
  d.device_get(&device, physical);
  d.device_name(out.name, sizeof out.name, device);
  CUuuid uuid = {};
  if (d.device_uuid(&uuid, device) == CUDA_SUCCESS) {
    char* text = out.uuid + std::snprintf(out.uuid, sizeof out.uuid, "GPU-");
    for (int i = 0; i < 16; ++i)
      text += std::snprintf(text, 4, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", static_cast<unsigned char>(uuid.bytes[i]));
  }
  d.device_pci_bus_id(out.pci_bus_id, sizeof out.pci_bus_id, device);
  out.compute_major = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  out.compute_minor = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  out.multiprocessors = attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  out.driver_version = d.version;
  out.runtime_version = CUDART_VERSION;
  std::size_t total = 0;
  d.device_total_memory(&total, device);
  out.total_memory = static_cast<std::int64_t>(total);
  const int smallest = compiled_capabilities()[0], capability = out.compute_major * 10 + out.compute_minor;
  out.usable = capability >= smallest && attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE) != CU_COMPUTEMODE_PROHIBITED;
  if (capability < smallest)
    std::snprintf(out.reason, sizeof out.reason, "its compute capability %d.%d is below %d.%d, the oldest this build was compiled for",
                  out.compute_major, out.compute_minor, smallest / 10, smallest % 10);
  else if (!out.usable) std::snprintf(out.reason, sizeof out.reason, "its compute mode is 'prohibited' (nvidia-smi -c)");
}

void diagnose(std::vector<Finding>& out) {
  try {
    out.push_back(driver_finding());
    out.push_back(
        {.layer = "runtime", .built_for = version_text(CUDART_VERSION), .found = version_text(CUDART_VERSION), .path = "linked in"});
    out.push_back(cublas_finding());
    add_cudnn(out);
    for (int physical = 0; physical < device_count(); ++physical) {
      DeviceProperties properties;
      device_properties(physical, properties);
      Finding finding{
          .layer = detail::concat("GPU ", physical),
          .ok = properties.usable,
          .found = detail::concat(properties.name, ", compute capability ", properties.compute_major, ".", properties.compute_minor)};
      for (const int* c = compiled_capabilities(); *c; ++c)
        finding.built_for += detail::concat(finding.built_for.empty() ? "" : ", ", *c / 10, ".", *c % 10);
      if (!finding.ok) {
        finding.problem = detail::concat("This GPU is not used: ", properties.reason, ".");
        finding.remedy = "Rebuild with this GPU in CMAKE_CUDA_ARCHITECTURES, or choose another GPU with CUDA_VISIBLE_DEVICES.";
      }
      out.push_back(std::move(finding));
    }
  } catch (const std::exception& error) {
    out.push_back({.layer = "diagnosis", .ok = false, .problem = error.what(), .remedy = "Run nvidia-smi."});
  }
}

}  // namespace tensorlite::cuda

/// See BackendEntry. Without a driver this backend serves too: it has no devices, and diagnose() says why.
extern "C" TL_API const tensorlite::Backend* tensorlite_backend(const char**) {
  using namespace tensorlite;
  using namespace tensorlite::cuda;
  static const Backend backend = {
      .abi_hash = kAbiHash,
      .name = "cuda",
      .kernels = {TL_KERNELS(TL_KERNEL_ENTRY)},
      .device_count = &device_count,
      .properties = &device_properties,
      .diagnose = &diagnose,
      .initialize = &initialize,
      .memory_info = &memory_info,
      .map_memory = &map_memory,
      .unmap_memory = &unmap_memory,
      .contiguous_regions = true,
      .copy_bytes = &cuda::copy_bytes,
      .current_stream = &current_stream,
      .synchronize = &cuda::synchronize,
      .begin_graph = &begin_graph,
      .end_graph = &end_graph,
      .run_graph = &run_graph,
      .destroy_graph = &destroy_graph,
  };
  return &backend;
}
