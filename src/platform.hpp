// Everything that asks the operating system. Implemented in platform.cpp and nowhere else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace tensorlite::platform {

/// CPUs that the control group's quota (version 1 or 2) allows, rounded up; 0 when there is no quota.
int cgroup_cpu_limit();

/// CPUs that this process may run on: affinity and the control group's quota.
int usable_cpus();
/// "AMD EPYC 9534 64-Core Processor"; empty when the system does not say.
std::string cpu_name();

/// Runs `callback` in the child after every fork(). Does nothing where there is no fork.
void at_fork_in_child(void (*callback)());
/// The same around fork(): `prepare` before it, then `parent` and `child` in each.
void at_fork(void (*prepare)(), void (*parent)(), void (*child)());

/// Bytes of memory this process may use: the machine's, or the control group's limit where that is less.
std::int64_t total_memory();
/// Bytes of it that are free now.
std::int64_t available_memory();

/// Zeroed, page-aligned memory that becomes physical when it is touched, in large pages where the system has them; null when refused.
void* map_pages(std::size_t bytes);
void unmap_pages(void* data, std::size_t bytes);

/// PCI addresses ("0000:01:00.0") of the NVIDIA GPUs that the machine has, driver or not, sorted: nvidia-smi's order.
std::vector<std::string> nvidia_gpus();

/// Absolute path, links resolved, of the library or program that contains this code.
std::string own_path();
/// Loads a library with all that it needs; null with the system's reason in `error`.
void* open_library(const std::string& path, std::string& error);
/// A function or object of it; null when it has none of that name.
void* find_symbol(void* library, const char* name);
/// Absolute path, links resolved, of a library that was loaded.
std::string library_path(void* library);
/// "libtensorlite_cuda.so" for "tensorlite_cuda".
std::string library_file_name(const std::string& stem);

/// Waits until what was flushed to `file` is on the disk; false with errno on failure. True for pipes and devices, which have no disk.
bool flush_to_disk(std::FILE* file);

/// Whether a person sees what is written to `file`.
bool is_terminal(std::FILE* file);

}  // namespace tensorlite::platform
