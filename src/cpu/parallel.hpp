// Threads. parallel_for is the only way to them; parallel.cpp, compiled once for all instruction sets, is the only file with OpenMP.
#pragma once

#include "isa.hpp"

#include <cstdint>
#include <memory>
#include <type_traits>

namespace tensorlite::cpu {

using RangeFunction = void (*)(void* body, std::int64_t begin, std::int64_t end);

/// Calls run(body, begin, end) on disjoint ranges that cover [0, count), in parallel; see parallel_for.
void parallel_ranges(std::int64_t count, std::int64_t grain, RangeFunction run, void* body);

/// Threads that a parallel_for of the calling thread may use: 1 inside another one, inside the caller's own OpenMP region, and in a
/// child process forked after threads were started.
int num_threads();

/// 0: back to the default: OMP_NUM_THREADS, else the CPUs that affinity and the control group's quota leave.
void set_num_threads(int count);

/// Runs task(argument, i) for every i in [0, tasks), in any order and thread, and returns when all are done.
using ParallelHook = void (*)(std::int64_t tasks, void (*task)(void* argument, std::int64_t i), void* argument);

/// Lets the host program's thread pool do the work; null: back to our own threads.
void set_parallel_for(ParallelHook hook);

namespace TL_CPU_NS {

/// Calls f(begin, end) on disjoint ranges that cover [0, count), in parallel. Serial (one call, on this thread) when count <= grain or
/// num_threads() is 1. Ranges depend on the number of threads: results must not. An exception thrown by f is rethrown here.
template <class F> void parallel_for(std::int64_t count, std::int64_t grain, F&& f) {
  if (count <= 0) return;
  if (count <= grain) return static_cast<void>(f(std::int64_t{0}, count));
  using Body = std::remove_reference_t<F>;
  const RangeFunction run = [](void* body, std::int64_t begin, std::int64_t end) { (*static_cast<Body*>(body))(begin, end); };
  parallel_ranges(count, grain, run, const_cast<void*>(static_cast<const void*>(std::addressof(f))));
}

}  // namespace TL_CPU_NS
}  // namespace tensorlite::cpu
