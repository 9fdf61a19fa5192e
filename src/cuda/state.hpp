// The state of a device once it is initialized, and the functions that a Backend is made of.
#pragma once

#include "common.hpp"
#include "index_check.hpp"

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <mutex>

namespace tensorlite::cuda {

/// Pinned buffers through which host memory goes to the device, so that a copy neither waits for the stream nor holds its source.
struct StagingRing {
  static constexpr std::size_t kSlotBytes = 4u << 20;
  static constexpr int kSlots = 4;
  std::mutex mutex;
  void* slot[kSlots] = {};
  cudaEvent_t free[kSlots] = {};
  int next = 0;
};

/// See index_check.hpp.
struct IndexChecks {
  std::mutex mutex;
  IndexFailure* failure = nullptr;
  std::atomic<int*> seen{nullptr};  ///< pinned; not 0: `failure` has something
  std::uint64_t calls = 0;
};

/// All threads share one stream per device: what one thread frees or hands to another is then always in order, without events.
struct DeviceState {
  bool initialized = false;
  CUcontext context = nullptr;  ///< the runtime's
  cudaStream_t stream = nullptr;
  cudaEvent_t handover = nullptr;  ///< orders copies between two devices
  DeviceLimits limits;
  StagingRing staging;
  IndexChecks checks;
};
/// Never destroyed, since tensors of static lifetime are released late.
DeviceState& device_state(int physical);
/// Makes the device the calling thread's.
DeviceState& enter_device(const char* op, int physical);

/// Whether a kernel has reported a bad index, as far as is known without waiting.
inline bool index_failed(const DeviceState& state) {
  const volatile int* seen = state.checks.seen.load(std::memory_order_acquire);
  return seen && *seen != 0;
}

// Members of Backend; see there.
int device_count();
void device_properties(int physical, DeviceProperties& out);
void diagnose(std::vector<Finding>& out);
void initialize(int physical);
void memory_info(int physical, std::int64_t& free, std::int64_t& total);
void* map_memory(int physical, std::size_t bytes, std::size_t reserve);
void unmap_memory(int physical, void* data, std::size_t bytes);
void copy_bytes(void* to, int to_physical, const void* from, int from_physical, std::size_t bytes, void* stream);
void* current_stream(int physical);
void synchronize(int physical);

/// Compute capabilities (75, 90, ...) that this library holds code for, smallest first; 0 ends the list.
const int* compiled_capabilities();
/// The runtime's answer to whether it finds a kernel of ours for the current device.
cudaError_t probe_kernel_image();

}  // namespace tensorlite::cuda
