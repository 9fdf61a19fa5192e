// What is known of the devices and the build, and why a GPU is not used.
#include "runtime_state.hpp"

#include "cpu/backend.hpp"
#include "platform.hpp"

#include <algorithm>
#include <cctype>

namespace tensorlite::config {

using namespace runtime;
using detail::concat;

namespace {

std::string cuda_version(int number) { return number ? concat(number / 1000, ".", number % 1000 / 10) : "unknown"; }

/// nvidia-smi numbers all GPUs of the machine by PCI address, whatever this process is shown.
std::string nvidia_smi_index(const std::string& pci_bus_id) {
  const std::vector<std::string> all = platform::nvidia_gpus();
  for (std::size_t i = 0; i < all.size(); ++i) {
    // CUDA writes 0000:0A:00.0, the kernel 0000:0a:00.0.
    const auto same = [](char a, char b) {
      return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
    };
    if (std::equal(all[i].begin(), all[i].end(), pci_bus_id.begin(), pci_bus_id.end(), same)) return concat(i);
  }
  return "unknown";
}

std::vector<std::pair<std::string, std::string>> gpu_details(const DeviceProperties& p) {
  return {{"device_name", p.name},
          {"compute_capability", concat(p.compute_major, ".", p.compute_minor)},
          {"total_memory", concat(p.total_memory)},
          {"pci_bus_id", p.pci_bus_id},
          {"uuid", p.uuid},
          {"nvidia_smi_index", nvidia_smi_index(p.pci_bus_id)},
          {"multiprocessors", concat(p.multiprocessors)},
          {"driver_version", cuda_version(p.driver_version)},
          {"runtime_version", cuda_version(p.runtime_version)}};
}

Finding hardware() {
  const std::vector<std::string> gpus = platform::nvidia_gpus();
  std::string found = gpus.empty() ? "no NVIDIA GPU" : concat(gpus.size(), gpus.size() == 1 ? " NVIDIA GPU:" : " NVIDIA GPUs:");
  for (const std::string& address : gpus) found += " " + address;
  return {.layer = "hardware", .ok = true, .built_for = "", .found = found, .path = "", .problem = "", .remedy = ""};
}

std::vector<Finding> collect_findings(State& s) {
  discover_gpus(s);
  std::vector<Finding> findings{hardware()};
  for (const Finding& finding : s.loader_findings)
    if (finding.ok || !s.gpu_backend) findings.push_back(finding);
  if (s.gpu_backend && s.gpu_backend->diagnose) s.gpu_backend->diagnose(findings);
  for (const Finding& skipped : s.skipped_gpus) {
    const auto same = [&](const Finding& f) { return f.layer == skipped.layer && !f.ok; };
    if (std::none_of(findings.begin(), findings.end(), same)) findings.push_back(skipped);
  }
  for (const Physical& gpu : s.gpus) {
    if (gpu.visible) continue;
    findings.push_back({.layer = "visibility",
                        .ok = false,
                        .built_for = "",
                        .found = gpu.id.name,
                        .path = "",
                        .problem = concat(gpu.id.name, " is hidden by config::set_visible_devices."),
                        .remedy = "Add it to the list."});
  }
  return findings;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> get_device_details(const PhysicalDevice& device) {
  State& s = state();
  std::lock_guard guard(s.mutex);
  const Physical& physical = find_physical(s, "get_device_details", device);
  if (physical.type == DeviceType::gpu) return gpu_details(physical.properties);
  return {{"device_name", physical.properties.name},
          {"instruction_set", cpu::instruction_set()},
          {"cores_usable", concat(platform::usable_cpus())},
          {"total_memory", concat(physical.properties.total_memory)}};
}

std::vector<std::pair<std::string, std::string>> get_build_details() {
  std::string sets;
  for (const char* set : cpu::usable_instruction_sets()) sets += concat(sets.empty() ? "" : ", ", set);
#if defined(__clang__)
  const std::string compiler = concat("clang ", __clang_version__);
#elif defined(__GNUC__)
  const std::string compiler = concat("g++ ", __VERSION__);
#else
  const std::string compiler = "unknown";
#endif
  return {{"version", TENSORLITE_VERSION}, {"library", platform::own_path()}, {"compiler", compiler}, {"instruction_sets", sets}};
}

std::vector<Finding> diagnose_gpus() {
  State& s = state();
  std::lock_guard guard(s.mutex);
  try {
    return collect_findings(s);
  } catch (const std::exception& error) {
    return {{.layer = "diagnosis", .ok = false, .built_for = "", .found = "", .path = "", .problem = error.what(), .remedy = ""}};
  }
}

void require_gpu() {
  ensure_initialized("call", "require_gpu");
  if (!find_slot(gpu_device())) throw_absent("require_gpu", "GPU:0");
}

}  // namespace tensorlite::config
