// The devices that a test body runs on: GENERATE(from_range(test_devices())).
#pragma once

#include <tensorlite/tensorlite.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

/// CPU:0, and GPU:0 where there is a usable one. TENSORLITE_TEST_DEVICE names the only one to test; when it is not there the CPU stands in
/// and a line says that it was skipped, or, under TENSORLITE_REQUIRE_DEVICE, every test fails.
inline std::vector<tensorlite::Device> test_devices() {
  using namespace tensorlite;
  const bool gpu_there = !config::list_logical_devices("GPU").empty();
  const char* wanted = std::getenv("TENSORLITE_TEST_DEVICE");
  if (!wanted) return gpu_there ? std::vector{cpu_device(), gpu_device()} : std::vector{cpu_device()};
  const DeviceSpec spec = DeviceSpec::parse(wanted);
  const Device device{spec.type.value_or(DeviceType::cpu), static_cast<std::int16_t>(spec.index.value_or(0))};
  if (device.is_cpu() || gpu_there) return {device};
  if (std::getenv("TENSORLITE_REQUIRE_DEVICE"))
    throw DeviceUnavailableError("test_devices", std::string(wanted) + " is required and not there");
  static const int said = std::fprintf(stderr, "skipped on %s: no such device\n", wanted);
  (void)said;
  return {cpu_device()};
}
