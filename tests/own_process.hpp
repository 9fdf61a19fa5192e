// Tests that need a process of their own: device settings freeze at the first op.
//
//   TEST_CASE("growth is frozen") {
//     if (auto child = own_process({{"TENSORLITE_SIMULATED_GPUS", "2x256"}})) return;  // the parent: the child ran, and passed
//     ...                                                                              // the child: the test itself
//   }
#pragma once

#include "catch.hpp"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

struct ChildResult {
  int status = 0;
  std::string output;  ///< stdout and stderr
};

using Environment = std::map<std::string, std::string>;

/// Runs a program with additions to the environment.
inline ChildResult run_program(const std::string& command, const Environment& environment) {
  std::string line = "env";
  for (const char* name : {"TENSORLITE_CUDA_PLUGIN", "TENSORLITE_SIMULATED_GPUS", "TENSORLITE_SIMULATED_FAULTS", "TENSORLITE_TEST_DEVICE",
                           "TENSORLITE_LOG", "TENSORLITE_LOG_PLACEMENT", "TENSORLITE_CPU_ISA", "TENSORLITE_FORCE_GPU_ALLOW_GROWTH",
                           "TF_FORCE_GPU_ALLOW_GROWTH", "TENSORLITE_CUDA_SYNC"})
    if (environment.count(name) == 0) line += std::string(" -u ") + name;
  for (const auto& [name, value] : environment) line += " '" + name + "=" + value + "'";
  ChildResult result;
  std::FILE* pipe = popen((line + " " + command + " 2>&1").c_str(), "r");
  if (!pipe) return {-1, "popen failed"};
  char buffer[4096];
  while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) result.output.append(buffer, n);
  const int status = pclose(pipe);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

/// In the parent: runs the current test case in a new process and checks that it passes; its result is returned. In that process:
/// nothing, and the test goes on.
inline std::optional<ChildResult> own_process(const Environment& environment = {}) {
  if (std::getenv("TENSORLITE_TEST_CHILD")) return std::nullopt;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  Environment with_mark = environment;
  with_mark["TENSORLITE_TEST_CHILD"] = "1";
  std::string name = Catch::getResultCapture().getCurrentTestName();
  for (std::size_t at = name.find('\''); at != std::string::npos; at = name.find('\'', at + 4)) name.replace(at, 1, "'\\''");
  for (std::size_t at = name.find(','); at != std::string::npos; at = name.find(',', at + 2))
    name.insert(at, "\\");  // else it ends a pattern
  ChildResult result = run_program("'" + program + "' '" + name + "'", with_mark);
  INFO(result.output);
  REQUIRE(result.status == 0);
  return result;
}

/// Runs `body` in a forked child; its exit status (128 + signal when it was killed). A child that hangs for 20 s is killed.
template <class Body> int in_fork(Body&& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(20);
    int status = 0;
    try {
      status = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      status = 99;
    }
    std::fflush(nullptr);
    _exit(status);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#if defined(TENSORLITE_SIMULATED_GPU_PLUGIN)
/// The environment of a process with simulated GPUs.
inline Environment simulated(const std::string& gpus, Environment more = {}) {
  more["TENSORLITE_CUDA_PLUGIN"] = TENSORLITE_SIMULATED_GPU_PLUGIN;
  more["TENSORLITE_SIMULATED_GPUS"] = gpus;
  return more;
}
#endif
/// The environment of a process without any GPU.
inline Environment without_gpu(Environment more = {}) {
  more["TENSORLITE_CUDA_PLUGIN"] = "/nowhere/libtensorlite_cuda.so";
  return more;
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
