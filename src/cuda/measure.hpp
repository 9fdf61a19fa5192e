// Timing of candidates for one call, for autotune.
#pragma once

#include "common.hpp"

namespace tensorlite::cuda {

/// A line on stderr at the log level 'info' or above.
void log_info(const std::string& text);

/// Keeps the stream busy for some time, so that what is queued meanwhile runs back to back.
void hold_stream(const Context& context);

/// A pair of events.
struct Stopwatch {
  cudaEvent_t begin = nullptr, end = nullptr;
  explicit Stopwatch(const Context& context) {
    check(context.op, "measuring", cudaEventCreate(&begin));
    check(context.op, "measuring", cudaEventCreate(&end));
  }
  ~Stopwatch() {
    if (begin) cudaEventDestroy(begin);
    if (end) cudaEventDestroy(end);
  }
  Stopwatch(const Stopwatch&) = delete;
};

/// Milliseconds of one call of `attempt` (true: it worked), the least of a few series; negative when it fails. One that is far slower than
/// `best` (negative: none yet) is not measured closely.
template <class F> float measure(const Context& context, F&& attempt, float best = -1) {
  const Stopwatch watch(context);
  float least = -1;
  if (!attempt()) return least;  // the first call loads code
  for (const int calls : {1, 2, 2}) {
    hold_stream(context);
    check(context.op, "measuring", cudaEventRecord(watch.begin, stream_of(context)));
    for (int call = 0; call < calls; ++call)
      if (!attempt()) return -1;
    check(context.op, "measuring", cudaEventRecord(watch.end, stream_of(context)));
    check(context.op, "measuring", cudaEventSynchronize(watch.end));
    float time = 0;
    check(context.op, "measuring", cudaEventElapsedTime(&time, watch.begin, watch.end));
    time /= static_cast<float>(calls);
    if (least < 0 || time < least) least = time;
    if (best >= 0 && least > 1.5f * best) break;
  }
  return least;
}

}  // namespace tensorlite::cuda
