// Everything that asks the operating system. Implemented in platform.cpp and nowhere else.
#pragma once

#include <cstdio>

namespace tensorlite::platform {

/// CPUs that the control group's quota (version 1 or 2) allows, rounded up; 0 when there is no quota.
int cgroup_cpu_limit();

/// Runs `callback` in the child after every fork(). Does nothing where there is no fork.
void at_fork_in_child(void (*callback)());

/// Waits until what was flushed to `file` is on the disk; false with errno on failure. True for pipes and devices, which have no disk.
bool flush_to_disk(std::FILE* file);

/// Whether a person sees what is written to `file`.
bool is_terminal(std::FILE* file);

}  // namespace tensorlite::platform
