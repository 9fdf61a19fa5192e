#include "index_check.hpp"

#include "state.hpp"

#include <algorithm>

namespace tensorlite::cuda {

IndexCheck check_values(const Context& context, void (*raise)(const IndexFailure&), std::initializer_list<std::int64_t> numbers) {
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
  made.known.raise = raise;
  std::copy(numbers.begin(), numbers.end(), made.known.numbers);
  return made;
}

IndexCheck check_indices(const Context& context, std::int64_t size, int axis) {
  const auto raise = [](const IndexFailure& f) {
    throw IndexError(f.op, detail::concat("index ", f.value, " is out of range for axis ", f.numbers[1], " of size ", f.numbers[0]));
  };
  return check_values(context, raise, {size, axis});
}

IndexCheck check_labels(const Context& context, std::int64_t classes, std::int64_t ignore_index) {
  const auto raise = [](const IndexFailure& f) {
    throw IndexError(f.op, detail::concat("label ", f.value, " at position ", f.position, " is outside [0, ", f.numbers[0],
                                          ") and is not ignore_index (", f.numbers[1], ")"));
  };
  return check_values(context, raise, {classes, ignore_index});
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
  failure.raise(failure);
}

}  // namespace tensorlite::cuda
