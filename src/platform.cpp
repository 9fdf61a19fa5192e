// The only file with operating-system calls.
#include "platform.hpp"

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>

#if defined(__unix__) || defined(__APPLE__)
#include <cerrno>
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>
#elif defined(_WIN32)
#include <io.h>
#include <windows.h>
#endif

namespace tensorlite::platform {

#if defined(__linux__)
namespace {

/// First line of a file, empty when it cannot be read.
std::string first_line(const std::string& path) {
  std::string line;
  if (std::FILE* file = std::fopen(path.c_str(), "re")) {
    char text[256];
    if (std::fgets(text, sizeof text, file)) line = text;
    std::fclose(file);
  }
  return line;
}

int quota_to_cpus(double quota, double period) {
  if (quota <= 0 || period <= 0) return 0;
  const auto whole = static_cast<int>(quota / period);
  return whole + (whole * period < quota ? 1 : 0);
}

int limit_in_v2(const std::string& folder) {
  const std::string line = first_line(folder + "/cpu.max");  // "max 100000" or "150000 100000"
  double quota = 0, period = 0;
  return std::sscanf(line.c_str(), "%lf %lf", &quota, &period) == 2 ? quota_to_cpus(quota, period) : 0;
}

int limit_in_v1(const std::string& folder) {
  const std::string quota = first_line(folder + "/cpu.cfs_quota_us"), period = first_line(folder + "/cpu.cfs_period_us");
  return quota_to_cpus(std::atof(quota.c_str()), std::atof(period.c_str()));
}

/// The tightest limit of `path` and the groups above it, as a limit binds everything below; 0 when there is none.
template <class Limit> std::int64_t tightest(const std::string& root, std::string path, Limit limit) {
  std::int64_t best = 0;
  for (;;) {
    const std::int64_t here = limit(root + path);
    if (here > 0 && (best == 0 || here < best)) best = here;
    const auto slash = path.rfind('/');
    if (path.empty() || slash == std::string::npos) return best;
    path.resize(slash);
  }
}

/// The tightest limit of this process's control groups that have `controller`, version 1 or 2; 0 when there is none.
template <class V1, class V2> std::int64_t cgroup_limit(const char* controller, V1 limit_in_v1, V2 limit_in_v2) {
  std::FILE* file = std::fopen("/proc/self/cgroup", "re");  // lines "0::/path" (v2) or "4:cpu,cpuacct:/path" (v1)
  if (!file) return 0;
  std::int64_t best = 0;
  char text[4096];
  while (std::fgets(text, sizeof text, file)) {
    std::string line(text);
    while (!line.empty() && (line.back() == '\n' || line.back() == '/')) line.pop_back();
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::string controllers(",");  // appended to: GCC 12 warns of its own operator+(const char*, std::string&&)
    controllers.append(line, first + 1, second - first - 1).append(",");
    const std::string path = line.substr(second + 1);
    std::int64_t here = 0;
    if (controllers == ",,") here = tightest("/sys/fs/cgroup", path, limit_in_v2);
    else if (controllers.find(std::string(",") + controller + ",") != std::string::npos)
      here = tightest(std::string("/sys/fs/cgroup/") + controller, path, limit_in_v1);
    if (here > 0 && (best == 0 || here < best)) best = here;
  }
  std::fclose(file);
  return best;
}

/// A number in a file; 0 when there is none ("max", no such file).
std::int64_t number_in(const std::string& path) { return std::atoll(first_line(path).c_str()); }

/// "MemTotal:        7973784 kB" of /proc/meminfo, in bytes.
std::int64_t meminfo(const char* key) {
  std::FILE* file = std::fopen("/proc/meminfo", "re");
  if (!file) return 0;
  long long kib = 0;
  char line[256];
  while (std::fgets(line, sizeof line, file))
    if (std::strncmp(line, key, std::strlen(key)) == 0 && std::sscanf(line + std::strlen(key), " %lld", &kib) == 1) break;
  std::fclose(file);
  return kib * 1024;
}

std::int64_t cgroup_memory_limit() {
  return cgroup_limit(
      "memory", [](const std::string& folder) { return number_in(folder + "/memory.limit_in_bytes"); },
      [](const std::string& folder) { return number_in(folder + "/memory.max"); });
}
/// What the group with the tightest limit leaves; 0 when there is no limit.
std::int64_t cgroup_memory_left() {
  const auto left = [](const std::string& folder, const char* limit_file, const char* used_file) {
    const std::int64_t limit = number_in(folder + limit_file);
    return limit > 0 ? std::max<std::int64_t>(1, limit - number_in(folder + used_file)) : 0;
  };
  return cgroup_limit(
      "memory", [&](const std::string& folder) { return left(folder, "/memory.limit_in_bytes", "/memory.usage_in_bytes"); },
      [&](const std::string& folder) { return left(folder, "/memory.max", "/memory.current"); });
}
std::int64_t smaller_limit(std::int64_t machine, std::int64_t group) { return group > 0 ? std::min(machine, group) : machine; }

int affinity_cpus() {
  // The kernel may know of more CPUs than a fixed set holds.
  for (std::size_t capacity = 1024; capacity <= 1 << 20; capacity *= 4) {
    cpu_set_t* set = CPU_ALLOC(capacity);
    const std::size_t bytes = CPU_ALLOC_SIZE(capacity);
    CPU_ZERO_S(bytes, set);
    const int cpus = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (cpus > 0) return cpus;
  }
  return 1;
}

}  // namespace

int cgroup_cpu_limit() { return static_cast<int>(std::min<std::int64_t>(cgroup_limit("cpu", limit_in_v1, limit_in_v2), INT_MAX)); }

int usable_cpus() {
  const int cpus = affinity_cpus(), quota = cgroup_cpu_limit();
  return quota > 0 ? std::min(cpus, quota) : cpus;
}

std::int64_t total_memory() { return smaller_limit(meminfo("MemTotal:"), cgroup_memory_limit()); }
std::int64_t available_memory() { return smaller_limit(meminfo("MemAvailable:"), cgroup_memory_left()); }

std::string cpu_name() {
  std::FILE* file = std::fopen("/proc/cpuinfo", "re");
  if (!file) return "";
  std::string name;
  char line[256];
  while (name.empty() && std::fgets(line, sizeof line, file)) {
    const char* colon = std::strncmp(line, "model name", 10) == 0 ? std::strchr(line, ':') : nullptr;
    if (!colon) continue;
    name = colon + 1;
    name.erase(0, name.find_first_not_of(" \t"));
    if (!name.empty() && name.back() == '\n') name.pop_back();
  }
  std::fclose(file);
  return name;
}

std::vector<std::string> nvidia_gpus() {
  std::vector<std::string> addresses;
  std::error_code none;  // no such folder: no devices
  for (const auto& device : std::filesystem::directory_iterator("/sys/bus/pci/devices", none)) {
    const std::string folder = device.path().string();
    // Class 0x03: displays and 3-D accelerators.
    if (first_line(folder + "/vendor").starts_with("0x10de") && first_line(folder + "/class").starts_with("0x03"))
      addresses.push_back(device.path().filename().string());
  }
  std::sort(addresses.begin(), addresses.end());
  return addresses;
}
#else
std::vector<std::string> nvidia_gpus() { return {}; }
#endif

#if defined(__linux__)
#elif defined(_WIN32)
int cgroup_cpu_limit() { return 0; }
int usable_cpus() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }
std::string cpu_name() {
  const char* name = std::getenv("PROCESSOR_IDENTIFIER");
  return name ? name : "";
}
namespace {
MEMORYSTATUSEX memory_status() {
  MEMORYSTATUSEX status = {};
  status.dwLength = sizeof status;
  GlobalMemoryStatusEx(&status);
  return status;
}
}  // namespace
std::int64_t total_memory() { return static_cast<std::int64_t>(memory_status().ullTotalPhys); }
std::int64_t available_memory() { return static_cast<std::int64_t>(memory_status().ullAvailPhys); }
#else
int cgroup_cpu_limit() { return 0; }
int usable_cpus() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }
std::string cpu_name() { return ""; }
std::int64_t total_memory() { return static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE); }
std::int64_t available_memory() { return total_memory(); }
#endif

void at_fork_in_child(void (*callback)()) { at_fork(nullptr, nullptr, callback); }
void at_fork([[maybe_unused]] void (*prepare)(), [[maybe_unused]] void (*parent)(), [[maybe_unused]] void (*child)()) {
#if defined(__unix__) || defined(__APPLE__)
  pthread_atfork(prepare, parent, child);
#endif
}

#if defined(_WIN32)
void* map_pages(std::size_t bytes) { return VirtualAlloc(nullptr, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE); }
void unmap_pages(void* data, std::size_t) { VirtualFree(data, 0, MEM_RELEASE); }

std::string own_path() {
  HMODULE module = nullptr;
  GetModuleHandleExA(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
                     reinterpret_cast<const char*>(&own_path), &module);
  char path[MAX_PATH];
  return std::string(path, GetModuleFileNameA(module, path, sizeof path));
}
void* open_library(const std::string& path, std::string& error) {
  const HMODULE library = LoadLibraryA(path.c_str());
  if (!library) error = "Windows error " + std::to_string(GetLastError()) + " (126: a library that it needs is missing)";
  return reinterpret_cast<void*>(library);
}
void* find_symbol(void* library, const char* name) {
  return reinterpret_cast<void*>(GetProcAddress(reinterpret_cast<HMODULE>(library), name));
}
std::string library_path(void* library) {
  char path[MAX_PATH];
  return std::string(path, GetModuleFileNameA(static_cast<HMODULE>(library), path, sizeof path));
}
std::string library_file_name(const std::string& stem) { return stem + ".dll"; }
#else
void* map_pages(std::size_t bytes) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS;
#if defined(MAP_NORESERVE)
  flags |= MAP_NORESERVE;
#endif
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (data == MAP_FAILED) return nullptr;
#if defined(MADV_HUGEPAGE)
  if (bytes >= std::size_t{2} << 20) madvise(data, bytes, MADV_HUGEPAGE);
#endif
  return data;
}
void unmap_pages(void* data, std::size_t bytes) { munmap(data, bytes); }

std::string own_path() {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<void*>(&own_path), &info) == 0 || !info.dli_fname) return "";
  // dladdr repeats how the file was named at start, which may be relative or, for a program, without its folder.
  char resolved[PATH_MAX];
  if (!realpath(info.dli_fname, resolved) && !realpath("/proc/self/exe", resolved)) return info.dli_fname;
  return resolved;
}
void* open_library(const std::string& path, std::string& error) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* reason = dlerror();
    error = reason ? reason : "unknown error";
  }
  return library;
}
void* find_symbol(void* library, const char* name) { return dlsym(library, name); }
std::string library_path(void* library) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || !map) return "";
  char resolved[PATH_MAX];
  return realpath(map->l_name, resolved) ? resolved : map->l_name;
}
std::string library_file_name(const std::string& stem) { return "lib" + stem + ".so"; }
#endif

#if defined(_WIN32)
bool flush_to_disk(std::FILE* file) { return _commit(_fileno(file)) == 0; }
bool is_terminal(std::FILE* file) { return _isatty(_fileno(file)) != 0; }
#else
bool flush_to_disk(std::FILE* file) { return fsync(fileno(file)) == 0 || errno == EINVAL || errno == EROFS; }
bool is_terminal(std::FILE* file) { return isatty(fileno(file)) == 1; }
#endif

}  // namespace tensorlite::platform
