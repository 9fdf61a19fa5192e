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

/// Milliseconds of one call of `attempt` (true: it worked), the best of three short series; negative when it fails.
template <class F> float measure(const Context& context, F&& attempt) {
  constexpr int kSeries = 3, kCalls = 3;
  const Stopwatch watch(context);
  float best = -1;
  if (!attempt()) return best;  // the first call loads code
  for (int series = 0; series < kSeries; ++series) {
    hold_stream(context);
    check(context.op, "measuring", cudaEventRecord(watch.begin, stream_of(context)));
    for (int call = 0; call < kCalls; ++call)
      if (!attempt()) return -1;
    check(context.op, "measuring", cudaEventRecord(watch.end, stream_of(context)));
    check(context.op, "measuring", cudaEventSynchronize(watch.end));
    float time = 0;
    check(context.op, "measuring", cudaEventElapsedTime(&time, watch.begin, watch.end));
    if (best < 0 || time / kCalls < best) best = time / kCalls;
  }
  return best;
}

}  // namespace tensorlite::cuda
