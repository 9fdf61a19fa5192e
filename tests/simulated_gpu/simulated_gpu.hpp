// What tests may ask of and do to the simulated GPU plug-in, found with dlsym in the loaded file.
//
// TENSORLITE_SIMULATED_GPUS=<n>x<MiB>: n devices of that much memory (default 2x256).
// TENSORLITE_SIMULATED_FAULTS=<fault>{,<fault>}, where a fault is one of
//   no_driver            no driver: no devices, and the diagnosis says so
//   old_driver           a driver older than the runtime: likewise
//   missing_library      the plug-in cannot serve: a library that it needs is not there
//   wrong_abi            the plug-in is of another build
//   old_gpu=<i>          device i has a compute capability that no kernel is compiled for
//   cudnn_mismatch       convolutions find a cuDNN part of another version
//   map_failure=<n>      the n-th request for device memory from now on (1: the next) is refused, and only that one
//   kernel_error=<op>    the next kernel of this op fails; the failure shows at the next synchronization or copy to the host
//   end_graph_failure    the next recorded graph cannot be made
#pragma once

#include <cstdint>

extern "C" {
/// Adds faults, as in the environment variable.
using SimulatedFaultFunction = void (*)(const char* faults);
/// Contexts that were created on a device: 0 until something uses it.
using SimulatedContextsFunction = int (*)(int physical);
/// Bytes of a device that its driver has given out (context and regions).
using SimulatedUsedFunction = std::int64_t (*)(int physical);
/// Kernels that ran on a device.
using SimulatedKernelsFunction = std::int64_t (*)(int physical);
}
inline constexpr const char* kSimulatedFault = "simulated_gpu_fault";
inline constexpr const char* kSimulatedContexts = "simulated_gpu_contexts";
inline constexpr const char* kSimulatedUsed = "simulated_gpu_used";
inline constexpr const char* kSimulatedKernels = "simulated_gpu_kernels";
