#include "position_flag.hpp"

namespace tensorlite::cuda {

PositionFlag::PositionFlag(const Context& context)
    : context_(context), checked_(!is_capturing(context)), flag_(context, checked_ ? sizeof(unsigned long long) : 0) {
  if (checked_)
    check(context.op, "preparing the index check", cudaMemsetAsync(flag_.data(), 0xff, sizeof(unsigned long long), stream_of(context)));
}

std::int64_t PositionFlag::first() const {
  return checked_ ? value_at(flag_.data<std::int64_t>()) : -1;  // untouched, all bits are set
}

std::int64_t PositionFlag::value_at(const std::int64_t* data) const {
  std::int64_t value = 0;
  check(context_.op, "reading the index check", cudaMemcpyAsync(&value, data, sizeof value, cudaMemcpyDeviceToHost, stream_of(context_)));
  check(context_.op, "running a kernel", cudaStreamSynchronize(stream_of(context_)));
  return value;
}

}  // namespace tensorlite::cuda
