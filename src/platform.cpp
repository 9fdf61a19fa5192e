// The only file with operating-system calls.
#include "platform.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#if defined(__unix__) || defined(__APPLE__)
#include <cerrno>
#include <pthread.h>
#include <unistd.h>
#elif defined(_WIN32)
#include <io.h>
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

/// The tightest limit of `path` and the groups above it, as a quota binds everything below.
template <class Limit> int tightest(const std::string& root, std::string path, Limit limit) {
  int best = 0;
  for (;;) {
    const int here = limit(root + path);
    if (here > 0 && (best == 0 || here < best)) best = here;
    const auto slash = path.rfind('/');
    if (path.empty() || slash == std::string::npos) return best;
    path.resize(slash);
  }
}

}  // namespace

int cgroup_cpu_limit() {
  std::FILE* file = std::fopen("/proc/self/cgroup", "re");  // lines "0::/path" (v2) or "4:cpu,cpuacct:/path" (v1)
  if (!file) return 0;
  int best = 0;
  char text[4096];
  while (std::fgets(text, sizeof text, file)) {
    std::string line(text);
    while (!line.empty() && (line.back() == '\n' || line.back() == '/')) line.pop_back();
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",", path = line.substr(second + 1);
    int here = 0;
    if (controllers == ",,") here = tightest("/sys/fs/cgroup", path, limit_in_v2);
    else if (controllers.find(",cpu,") != std::string::npos) here = tightest("/sys/fs/cgroup/cpu", path, limit_in_v1);
    if (here > 0 && (best == 0 || here < best)) best = here;
  }
  std::fclose(file);
  return best;
}
#else
int cgroup_cpu_limit() { return 0; }
#endif

void at_fork_in_child([[maybe_unused]] void (*callback)()) {
#if defined(__unix__) || defined(__APPLE__)
  pthread_atfork(nullptr, nullptr, callback);
#endif
}

#if defined(_WIN32)
bool flush_to_disk(std::FILE* file) { return _commit(_fileno(file)) == 0; }
bool is_terminal(std::FILE* file) { return _isatty(_fileno(file)) != 0; }
#else
bool flush_to_disk(std::FILE* file) { return fsync(fileno(file)) == 0 || errno == EINVAL || errno == EROFS; }
bool is_terminal(std::FILE* file) { return isatty(fileno(file)) == 1; }
#endif

}  // namespace tensorlite::platform
