// How a kernel tells the host that it met a bad index: the smallest position at which it did.
#pragma once

#include "common.hpp"

namespace tensorlite::cuda {

/// Lives around one launch. first() waits for the stream, except while a graph is captured, when nothing is checked.
class PositionFlag {
 public:
  explicit PositionFlag(const Context& context);
  unsigned long long* device() const { return checked_ ? flag_.data<unsigned long long>() : nullptr; }
  /// The smallest position reported, -1 when none was.
  std::int64_t first() const;
  /// One element of an int64 array on the device.
  std::int64_t value_at(const std::int64_t* data) const;

 private:
  const Context& context_;
  bool checked_;
  Workspace flag_;
};

#if defined(__CUDACC__)
__device__ inline void report_position(unsigned long long* flag, std::int64_t position) {
  if (flag) atomicMin(flag, static_cast<unsigned long long>(position));
}
#endif

}  // namespace tensorlite::cuda
