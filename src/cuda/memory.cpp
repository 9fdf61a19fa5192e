// Device memory: physical pages mapped into one reserved address range per device, and copies.
#include "driver.hpp"
#include "state.hpp"

#include <algorithm>
#include <cstring>
#include <map>

namespace tensorlite::cuda {
namespace {

constexpr const char* kOp = "cuda memory";
constexpr std::size_t kGap = std::size_t(2) << 20;

[[noreturn]] void throw_driver_error(const char* doing, CUresult result) {
  throw BackendError(kOp, detail::concat(doing, ": ", driver().text(result)));
}
void check_driver(const char* doing, CUresult result) {
  if (result != CUDA_SUCCESS) throw_driver_error(doing, result);
}

/// The addresses of one device. Regions of all its pools lie side by side, so that a pool's regions adjoin when it grows alone and one
/// copy may cross from one into the next.
struct AddressRange {
  std::mutex mutex;
  bool plain = false;  ///< regions are allocations of the runtime
  CUdeviceptr base = 0;
  std::map<CUdeviceptr, std::size_t> gaps;  ///< unmapped parts of the range
  struct Region {
    CUmemGenericAllocationHandle pages;
    std::size_t bytes;
  };
  std::map<CUdeviceptr, Region> regions;

  void reserve(std::size_t total_memory) {
    if (base) return;
    constexpr std::size_t kUnit = std::size_t(2) << 20;
    const std::size_t bytes = (2 * total_memory + kUnit - 1) / kUnit * kUnit;  // twice: gaps may be too small for a later region
    check_driver("reserving addresses", driver().address_reserve(&base, bytes, 0, 0, 0));
    gaps[base] = bytes;
  }
  CUdeviceptr take(std::size_t bytes) {
    for (auto gap = gaps.begin(); gap != gaps.end(); ++gap) {
      if (gap->second < bytes) continue;
      const CUdeviceptr at = gap->first;
      const std::size_t rest = gap->second - bytes;
      gaps.erase(gap);
      if (rest) gaps[at + bytes] = rest;
      return at;
    }
    return 0;
  }
  void give_back(CUdeviceptr at, std::size_t bytes) {
    auto next = gaps.lower_bound(at);
    if (next != gaps.end() && at + bytes == next->first) {
      bytes += next->second;
      next = gaps.erase(next);
    }
    if (next != gaps.begin() && std::prev(next)->first + std::prev(next)->second == at) std::prev(next)->second += bytes;
    else gaps[at] = bytes;
  }
};

AddressRange& range_of(int physical) {
  static auto* ranges = new AddressRange[kMaxPhysical];
  return ranges[physical];
}

CUmemAllocationProp pages_of(int physical) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = physical;
  return properties;
}

/// Maps and opens `pages` at `at`; false (and unmapped) when the driver has no memory for its tables.
bool map_pages(int physical, CUdeviceptr at, std::size_t bytes, CUmemGenericAllocationHandle pages) {
  CUresult result = driver().memory_map(at, bytes, 0, pages, 0);
  if (result == CUDA_SUCCESS) {
    CUmemAccessDesc access = {};
    access.location = pages_of(physical).location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    result = driver().memory_set_access(at, bytes, &access, 1);
    if (result == CUDA_SUCCESS) return true;
    driver().memory_unmap(at, bytes);
  }
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return false;
  throw_driver_error("mapping memory", result);
}

/// Where the driver has no virtual memory for us. The gap behind a region keeps it from adjoining the next one.
void* map_plain(std::size_t bytes) {
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes + kGap);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check(kOp, "cudaMalloc", status);
  return data;
}

void* map_virtual(int physical, AddressRange& range, std::size_t bytes) {
  CUdevice device = 0;
  std::size_t total = 0;
  check_driver("finding the device", driver().device_get(&device, physical));
  check_driver("reading the memory size", driver().device_total_memory(&total, device));
  range.reserve(total);
  const CUmemAllocationProp properties = pages_of(physical);
  CUmemGenericAllocationHandle pages = 0;
  const CUresult result = driver().memory_create(&pages, bytes, &properties, 0);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return nullptr;
  check_driver("taking memory", result);
  const CUdeviceptr at = range.take(bytes);
  if (!at || !map_pages(physical, at, bytes, pages)) {
    if (at) range.give_back(at, bytes);
    driver().memory_release(pages);
    return nullptr;
  }
  range.regions[at] = {pages, bytes};
  return reinterpret_cast<void*>(at);
}

void host_to_device(DeviceState& state, char* to, const char* from, std::size_t bytes) {
  StagingRing& ring = state.staging;
  std::lock_guard lock(ring.mutex);
  for (std::size_t done = 0; done < bytes;) {
    const int at = ring.next;
    ring.next = (at + 1) % StagingRing::kSlots;
    if (!ring.slot[at]) {
      check("copy", "allocating pinned memory", cudaHostAlloc(&ring.slot[at], StagingRing::kSlotBytes, cudaHostAllocPortable));
      check("copy", "creating an event", cudaEventCreateWithFlags(&ring.free[at], cudaEventDisableTiming));
    }
    check("copy", "waiting for a staging buffer", cudaEventSynchronize(ring.free[at]));
    const std::size_t part = std::min(bytes - done, StagingRing::kSlotBytes);
    std::memcpy(ring.slot[at], from + done, part);
    check("copy", "to the device", cudaMemcpyAsync(to + done, ring.slot[at], part, cudaMemcpyHostToDevice, state.stream));
    check("copy", "recording an event", cudaEventRecord(ring.free[at], state.stream));
    done += part;
  }
}

void between_devices(void* to, int to_physical, const void* from, int from_physical, std::size_t bytes) {
  DeviceState& source = enter_device("copy", from_physical);
  check("copy", "recording an event", cudaEventRecord(source.handover, source.stream));
  DeviceState& target = enter_device("copy", to_physical);
  check("copy", "waiting for the other device", cudaStreamWaitEvent(target.stream, source.handover, 0));
  check("copy", "between devices", cudaMemcpyPeerAsync(to, to_physical, from, from_physical, bytes, target.stream));
  // The source may be freed and reused at once: its stream goes on after the copy.
  check("copy", "recording an event", cudaEventRecord(target.handover, target.stream));
  enter_device("copy", from_physical);
  check("copy", "waiting for the copy", cudaStreamWaitEvent(source.stream, target.handover, 0));
}

}  // namespace

void* map_memory(int physical, std::size_t bytes, std::size_t) {
  enter_device(kOp, physical);
  AddressRange& range = range_of(physical);
  const std::lock_guard lock(range.mutex);
  if (range.plain) return map_plain(bytes);
  try {
    return map_virtual(physical, range, bytes);
  } catch (const BackendError&) {
    if (!range.regions.empty()) throw;
    range.plain = true;  // some virtual machines and old drivers do not offer it
  }
  return map_plain(bytes);
}

void unmap_memory(int physical, void* data, std::size_t) {
  if (cudaSetDevice(physical) == cudaErrorCudartUnloading) return;  // the process ends, and its memory with it
  const DeviceState& state = enter_device(kOp, physical);
  check(kOp, "waiting before memory is given back", cudaStreamSynchronize(state.stream));
  AddressRange& range = range_of(physical);
  const std::lock_guard lock(range.mutex);
  const auto region = range.regions.find(reinterpret_cast<CUdeviceptr>(data));
  if (region == range.regions.end()) return check(kOp, "cudaFree", cudaFree(data));
  check_driver("unmapping memory", driver().memory_unmap(region->first, region->second.bytes));
  driver().memory_release(region->second.pages);
  range.give_back(region->first, region->second.bytes);
  range.regions.erase(region);
}

void memory_info(int physical, std::int64_t& free, std::int64_t& total) {
  enter_device(kOp, physical);
  std::size_t free_bytes = 0, total_bytes = 0;
  check(kOp, "reading free memory", cudaMemGetInfo(&free_bytes, &total_bytes));
  free = static_cast<std::int64_t>(free_bytes);
  total = static_cast<std::int64_t>(total_bytes);
}

void copy_bytes(void* to, int to_physical, const void* from, int from_physical, std::size_t bytes, void* stream) {
  if (bytes == 0) return;
  if (to_physical >= 0 && from_physical >= 0 && to_physical != from_physical)
    return between_devices(to, to_physical, from, from_physical, bytes);
  DeviceState& state = enter_device("copy", to_physical >= 0 ? to_physical : from_physical);
  if (from_physical < 0) return host_to_device(state, static_cast<char*>(to), static_cast<const char*>(from), bytes);
  const bool to_host = to_physical < 0;
  const cudaMemcpyKind kind = to_host ? cudaMemcpyDeviceToHost : cudaMemcpyDeviceToDevice;
  check("copy", to_host ? "to the host" : "on the device", cudaMemcpyAsync(to, from, bytes, kind, static_cast<cudaStream_t>(stream)));
  if (!to_host) return;
  check("copy", "waiting for the stream", cudaStreamSynchronize(state.stream));
  if (index_failed(state)) throw_index_failure(from_physical);
}

}  // namespace tensorlite::cuda
