#include "cpu/backend.hpp"

#include "platform.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#if defined(TL_CPU_HAS_AVX512)
extern "C" const tensorlite::KernelTable& cpu_kernel_table_avx512();
#endif
#if defined(TL_CPU_HAS_AVX2)
extern "C" const tensorlite::KernelTable& cpu_kernel_table_avx2();
#endif
#if defined(TL_CPU_HAS_V2)
extern "C" const tensorlite::KernelTable& cpu_kernel_table_v2();
#endif
#if defined(TL_CPU_HAS_NATIVE)
extern "C" const tensorlite::KernelTable& cpu_kernel_table_native();
#endif

namespace tensorlite::cpu {

namespace {

struct KernelSet {
  const char* name;
  bool usable;
  const KernelTable& (*table)();
};

/// The sets compiled in, best first.
std::vector<KernelSet> kernel_sets() {
  std::vector<KernelSet> sets;
#if defined(__x86_64__) && defined(__GNUC__)
  __builtin_cpu_init();
#endif
#if defined(TL_CPU_HAS_AVX512)
  sets.push_back({"avx512",
                  __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma"),
                  &cpu_kernel_table_avx512});
#endif
#if defined(TL_CPU_HAS_AVX2)
  sets.push_back(
      {"avx2", __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"), &cpu_kernel_table_avx2});
#endif
#if defined(TL_CPU_HAS_V2)
  sets.push_back({"v2", __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt"), &cpu_kernel_table_v2});
#endif
#if defined(TL_CPU_HAS_NATIVE)
  sets.push_back({"native", true, &cpu_kernel_table_native});
#endif
  return sets;
}

/// The set that TENSORLITE_CPU_ISA names, else the best that this machine has.
KernelSet choose() {
  const std::vector<KernelSet> sets = kernel_sets();
  const char* wanted = std::getenv("TENSORLITE_CPU_ISA");
  KernelSet best = {"none", false, nullptr};
  std::string names;
  for (const KernelSet& set : sets) {
    if (!set.usable) continue;
    if (wanted && std::strcmp(wanted, set.name) == 0) return set;
    if (!best.table) best = set;
    names += std::string(names.empty() ? "" : ", ") + set.name;
  }
  if (wanted && *wanted)
    std::fprintf(
        stderr,
        "tensorlite: error: TENSORLITE_CPU_ISA=%s is unknown, not compiled in or not supported by this CPU; usable: %s; taking %s\n",
        wanted, names.c_str(), best.name);
  if (!best.table)
    throw DeviceUnavailableError("CPU", "this CPU has none of the instruction sets compiled into tensorlite; build it for this machine");
  return best;
}

const KernelSet& chosen() {
  static const KernelSet set = choose();
  return set;
}

void properties(int, DeviceProperties& out) {
  out = DeviceProperties{};
  std::snprintf(out.name, sizeof out.name, "%s", platform::cpu_name().c_str());
  out.total_memory = platform::total_memory();
}

Backend make_backend() {
  Backend backend;
  backend.abi_hash = kAbiHash;
  backend.name = "cpu";
  backend.kernels = chosen().table();
  backend.device_count = [] { return 1; };
  backend.properties = &properties;
  backend.memory_info = [](int, std::int64_t& free, std::int64_t& total) {
    free = platform::available_memory();
    total = platform::total_memory();
  };
  backend.map_memory = [](int, std::size_t bytes, std::size_t) { return platform::map_pages(bytes); };
  backend.unmap_memory = [](int, void* data, std::size_t bytes) { platform::unmap_pages(data, bytes); };
  backend.granularity = 64;
  backend.contiguous_regions = true;
  backend.copy_bytes = [](void* to, int, const void* from, int, std::size_t bytes, void*) { std::memcpy(to, from, bytes); };
  return backend;
}

}  // namespace

const Backend& backend() {
  static const Backend& made = *new Backend(make_backend());
  return made;
}

const char* instruction_set() { return chosen().name; }

std::vector<const char*> usable_instruction_sets() {
  std::vector<const char*> names;
  for (const KernelSet& set : kernel_sets())
    if (set.usable) names.push_back(set.name);
  return names;
}

}  // namespace tensorlite::cpu
