// The CUDA driver, opened at run time: asked for devices without creating a context, and for virtual memory.
#pragma once

#include "library.hpp"

#include <cuda.h>

namespace tensorlite::cuda {

// X(member, symbol)
#define TL_DRIVER_FUNCTIONS(X)                \
  X(init, cuInit)                             \
  X(get_version, cuDriverGetVersion)          \
  X(error_string, cuGetErrorString)           \
  X(device_count, cuDeviceGetCount)           \
  X(device_get, cuDeviceGet)                  \
  X(device_name, cuDeviceGetName)             \
  X(device_attribute, cuDeviceGetAttribute)   \
  X(device_uuid, cuDeviceGetUuid_v2)          \
  X(device_total_memory, cuDeviceTotalMem_v2) \
  X(device_pci_bus_id, cuDeviceGetPCIBusId)   \
  X(current_context, cuCtxGetCurrent)         \
  X(address_reserve, cuMemAddressReserve)     \
  X(address_free, cuMemAddressFree)           \
  X(memory_create, cuMemCreate)               \
  X(memory_release, cuMemRelease)             \
  X(memory_map, cuMemMap)                     \
  X(memory_unmap, cuMemUnmap)                 \
  X(memory_set_access, cuMemSetAccess)        \
  X(memory_granularity, cuMemGetAllocationGranularity)

struct Driver {
  Library library{"libcuda.so.1", "libcuda.so"};
  int version = 0;                 ///< 13000 is 13.0
  CUresult status = CUDA_SUCCESS;  ///< of cuInit
  int count = 0;
#define TL_DRIVER_MEMBER(member, symbol) decltype(&::symbol) member = nullptr;
  TL_DRIVER_FUNCTIONS(TL_DRIVER_MEMBER)
#undef TL_DRIVER_MEMBER

  Driver();
  bool usable() const { return library.complete() && status == CUDA_SUCCESS; }
  std::string text(CUresult result) const;
};

/// Opened and initialized (cuInit creates no context) at the first call.
Driver& driver();

/// Throws DeviceUnavailableError in the child of a process that had used CUDA: it cannot be used there.
void refuse_after_fork(const char* op);

}  // namespace tensorlite::cuda
