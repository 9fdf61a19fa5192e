// Devices brought up, streams, errors of the runtime.
#include "state.hpp"

#include "driver.hpp"
#include "graph.hpp"
#include "measure.hpp"

#include <cstdio>
#include <cstdlib>

namespace tensorlite::cuda {
namespace {

bool synchronous() {
  static const bool on = [] {
    const char* text = std::getenv("TENSORLITE_CUDA_SYNC");
    return text && text[0] == '1';
  }();
  return on;
}

/// error 0, warn 1 (the default), info 2, debug 3.
int log_level() {
  const char* text = std::getenv("TENSORLITE_LOG");
  if (!text) return 1;
  return text[0] == 'e' ? 0 : text[0] == 'i' ? 2 : text[0] == 'd' ? 3 : 1;
}

std::string list_of_capabilities() {
  std::string text;
  for (const int* c = compiled_capabilities(); *c; ++c) text += detail::concat(text.empty() ? "" : ", ", *c / 10, ".", *c % 10);
  return text;
}

/// Throws, naming what was compiled, when the current device cannot run this library's kernels.
void require_kernel_image(int physical) {
  const cudaError_t status = probe_kernel_image();
  if (status == cudaSuccess) return;
  cudaGetLastError();
  DeviceProperties properties;
  device_properties(physical, properties);
  TL_CHECK(
      status != cudaErrorNoKernelImageForDevice && status != cudaErrorInvalidDeviceFunction && status != cudaErrorUnsupportedPtxVersion,
      DeviceUnavailableError, "cuda", properties.name, " has compute capability ", properties.compute_major, ".", properties.compute_minor,
      ", for which this build of tensorlite has no code; it was compiled for ", list_of_capabilities(),
      ". Rebuild with CMAKE_CUDA_ARCHITECTURES=", properties.compute_major, properties.compute_minor);
  check("cuda", "looking for a kernel", status);
}

}  // namespace

DeviceState& device_state(int physical) {
  static auto* states = new DeviceState[kMaxPhysical];
  return states[physical];
}

DeviceState& enter_device(const char* op, int physical) {
  refuse_after_fork(op);
  DeviceState& state = device_state(physical);
  CUcontext now = nullptr;  // asked for at every op: a tenth of the cost of cudaSetDevice, and others may have changed it
  if (!state.context || driver().current_context(&now) != CUDA_SUCCESS || now != state.context)
    check(op, "selecting the device", cudaSetDevice(physical));
  return state;
}

const DeviceLimits& limits_of(const Context& context) { return device_state(context.physical).limits; }

void throw_cuda_error(const char* op, const char* doing, cudaError_t status) {
  cudaGetLastError();  // an error that was reported here must not surface at the next launch
  const std::string text = detail::concat(doing, ": ", cudaGetErrorName(status), ": ", cudaGetErrorString(status));
  if (status == cudaErrorMemoryAllocation) throw OutOfMemoryError(op, text);
  throw BackendError(op, text);
}

void log_warning(const std::string& text) {
  if (log_level() >= 1) std::fprintf(stderr, "tensorlite: warning: %s\n", text.c_str());
}
void log_info(const std::string& text) {
  if (log_level() >= 2) std::fprintf(stderr, "tensorlite: info: %s\n", text.c_str());
}
void log_debug(const std::string& text) {
  if (log_level() >= 3) std::fprintf(stderr, "tensorlite: debug: %s\n", text.c_str());
}

void check_launch(const Context& context) {
  check(context.op, "launching a kernel", cudaGetLastError());
  if (is_capturing(context)) return;
  if (synchronous()) check(context.op, "running a kernel", cudaStreamSynchronize(stream_of(context)));
  if (index_failed(device_state(context.physical))) [[unlikely]]
    throw_index_failure(context.physical);
}

void initialize(int physical) {
  DeviceState& state = enter_device("cuda", physical);
  if (state.initialized) return;
  check("cuda", "creating the context", cudaFree(nullptr));
  driver().current_context(&state.context);
  require_kernel_image(physical);
  int value = 0;
  check("cuda", "reading an attribute", cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, physical));
  state.limits.multiprocessors = value;
  check("cuda", "reading an attribute", cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, physical));
  state.limits.max_shared_memory = value;
  check("cuda", "creating a stream", cudaStreamCreateWithFlags(&state.stream, cudaStreamNonBlocking));
  check("cuda", "creating an event", cudaEventCreateWithFlags(&state.handover, cudaEventDisableTiming));
  state.initialized = true;
}

void* current_stream(int physical) {
  const DeviceState& state = enter_device("cuda", physical);
  const Graph* graph = recording_graph();
  return graph && graph->physical == physical ? graph->stream : state.stream;
}

void synchronize(int physical) {
  DeviceState& state = enter_device("synchronize", physical);
  check("synchronize", "a kernel failed", cudaStreamSynchronize(state.stream));
  if (index_failed(state)) throw_index_failure(physical);
}

}  // namespace tensorlite::cuda
