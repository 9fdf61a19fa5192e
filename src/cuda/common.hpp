// What every file of the CUDA backend needs: kernel declarations, error checks, the state of a device.
#pragma once

#include <tensorlite/backend.hpp>

#include <cuda_runtime_api.h>

namespace tensorlite::cuda {

TL_KERNELS(TL_KERNEL_DECLARATION)

/// Throws OutOfMemoryError or BackendError("op: doing: cudaErrorName: text") and clears the runtime's last error.
[[noreturn]] void throw_cuda_error(const char* op, const char* doing, cudaError_t status);
inline void check(const char* op, const char* doing, cudaError_t status) {
  if (status != cudaSuccess) [[unlikely]]
    throw_cuda_error(op, doing, status);
}

inline cudaStream_t stream_of(const Context& context) { return static_cast<cudaStream_t>(context.stream); }

/// Throws when the launch just made failed; under TENSORLITE_CUDA_SYNC=1 also when the kernel did.
void check_launch(const Context& context);

/// True while the call is recorded into a graph, when nothing may wait for the stream.
inline bool is_capturing(const Context& context) { return context.graph != nullptr; }

/// A line on stderr at the log level TENSORLITE_LOG or above: a plug-in has no symbol of the library's own log.
void log_warning(const std::string& text);
void log_debug(const std::string& text);

inline constexpr int kMaxPhysical = 64;

/// What is looked up once per device, by initialize().
struct DeviceLimits {
  int multiprocessors = 1;
  int max_shared_memory = 48 << 10;  ///< of one block, opted in
};
const DeviceLimits& limits_of(const Context& context);

}  // namespace tensorlite::cuda
