#include "index_check.hpp"

#include "state.hpp"

namespace tensorlite::cuda {
namespace {

IndexCheck make_check(const Context& context) {
  DeviceState& state = device_state(context.physical);
  IndexChecks& checks = state.checks;
  const std::lock_guard lock(checks.mutex);
  if (!checks.failure) {
    void* failure = nullptr;
    check(context.op, "preparing index checks", cudaMalloc(&failure, sizeof(IndexFailure)));
    checks.failure = static_cast<IndexFailure*>(failure);
    check(context.op, "preparing index checks", cudaMemsetAsync(checks.failure, 0, sizeof(IndexFailure), state.stream));
    void* seen = nullptr;
    check(context.op, "preparing index checks", cudaHostAlloc(&seen, sizeof(int), cudaHostAllocMapped | cudaHostAllocPortable));
    *static_cast<int*>(seen) = 0;
    checks.seen.store(static_cast<int*>(seen), std::memory_order_release);
  }
  IndexCheck made{.failure = checks.failure, .seen = checks.seen.load(std::memory_order_relaxed), .known = {}};
  made.known.call = ++checks.calls;
  made.known.op = context.op;
  return made;
}

std::string text_of(const IndexFailure& f) {
  if (f.label)
    return detail::concat("label ", f.value, " at position ", f.position, " is outside [0, ", f.size, ") and is not ignore_index (",
                          f.detail, ")");
  return detail::concat("index ", f.value, " is out of range for axis ", f.detail, " of size ", f.size);
}

}  // namespace

IndexCheck check_indices(const Context& context, std::int64_t size, int axis) {
  IndexCheck made = make_check(context);
  made.known.size = size;
  made.known.detail = axis;
  return made;
}

IndexCheck check_labels(const Context& context, std::int64_t classes, std::int64_t ignore_index) {
  IndexCheck made = make_check(context);
  made.known.size = classes;
  made.known.detail = ignore_index;
  made.known.label = true;
  return made;
}

void throw_index_failure(int physical) {
  DeviceState& state = device_state(physical);
  IndexFailure failure;
  {
    const std::lock_guard lock(state.checks.mutex);
    if (!index_failed(state)) return;  // another thread has thrown it
    const char* doing = "reading an index check";
    check("index check", doing, cudaStreamSynchronize(state.stream));
    check("index check", doing, cudaMemcpyAsync(&failure, state.checks.failure, sizeof failure, cudaMemcpyDeviceToHost, state.stream));
    check("index check", doing, cudaMemsetAsync(state.checks.failure, 0, sizeof failure, state.stream));
    check("index check", doing, cudaStreamSynchronize(state.stream));
    *state.checks.seen.load(std::memory_order_relaxed) = 0;
  }
  throw IndexError(failure.op, text_of(failure));
}

}  // namespace tensorlite::cuda
