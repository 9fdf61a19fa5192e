// Indices, labels and lengths out of range, without waiting: a kernel notes the first bad one on the device; the host throws when it next
// launches a kernel, runs a graph or waits.
#pragma once

#include "common.hpp"

#include <initializer_list>

namespace tensorlite::cuda {

/// What is known of a bad value; in device memory, one per device.
struct IndexFailure {
  unsigned lock = 0;
  std::uint64_t call = 0;  ///< of the failed op; 0: nothing failed
  std::int64_t position = 0, value = 0;
  std::int64_t numbers[4] = {};  ///< what `raise` needs besides
  const char* op = nullptr;      ///< the host's, as is
  void (*raise)(const IndexFailure& failure) = nullptr;
};

/// One op's check, given to its kernel by value. Reports of earlier ops and of smaller positions win.
struct IndexCheck {
  IndexFailure* failure;
  int* seen;  ///< memory of the host
  IndexFailure known;
#if defined(__CUDACC__)
  __device__ void report(std::int64_t position, std::int64_t value) const {
    for (bool done = false; !done;) {
      if (atomicCAS(&failure->lock, 0u, 1u) != 0u) continue;
      __threadfence();
      volatile IndexFailure& f = *failure;
      if (f.call == 0 || (f.call == known.call && position < f.position)) {
        f.position = position, f.value = value, f.call = known.call, f.op = known.op, f.raise = known.raise;
        for (int i = 0; i < 4; ++i) f.numbers[i] = known.numbers[i];
      }
      __threadfence();
      atomicExch(&failure->lock, 0u);
      done = true;
    }
    __threadfence_system();
    *static_cast<volatile int*>(seen) = 1;
  }
#endif
};

/// `raise` is called on the host and throws; `numbers` are for it.
IndexCheck check_values(const Context& context, void (*raise)(const IndexFailure& failure), std::initializer_list<std::int64_t> numbers);
/// Indices of an axis of `size`, negative ones counting from its end.
IndexCheck check_indices(const Context& context, std::int64_t size, int axis);
/// Labels of classes; ignore_index is none.
IndexCheck check_labels(const Context& context, std::int64_t classes, std::int64_t ignore_index);

/// Throws what a kernel has reported, and forgets it.
void throw_index_failure(int physical);

}  // namespace tensorlite::cuda
