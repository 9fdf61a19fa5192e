// The team: OpenMP, or a small pool of std::thread where OpenMP cannot be had (TENSORLITE_NO_OPENMP) or would blind ThreadSanitizer,
// which does not see libgomp's synchronisation.
#include "parallel.hpp"

#include "../platform.hpp"

#include <algorithm>
#include <atomic>
#include <exception>

#if !defined(_OPENMP) || defined(TENSORLITE_NO_OPENMP) || defined(__SANITIZE_THREAD__)
#define TL_OWN_THREADS
#include "thread_pool.hpp"

#include <cstdlib>
#else
#include <omp.h>
#endif

namespace tensorlite::cpu {
namespace {

std::atomic<ParallelHook> g_hook{nullptr};
std::atomic<int> g_requested{0};
std::atomic<bool> g_team_started{false};  // a child forked from now on has no team, and libgomp would wait for it forever
std::atomic<bool> g_serial{false};
thread_local bool t_inside = false;

/// Marks this thread as working for a parallel_for.
struct InsideGuard {
  bool before = t_inside;
  InsideGuard() { t_inside = true; }
  ~InsideGuard() { t_inside = before; }
};

void serial_after_fork() {
  if (g_team_started.load(std::memory_order_relaxed)) g_serial.store(true, std::memory_order_relaxed);
}

#if defined(TL_OWN_THREADS)
bool in_foreign_region() { return false; }
int system_threads() {
  const char* text = std::getenv("OMP_NUM_THREADS");
  const int asked = text ? std::atoi(text) : 0;
  return asked > 0 ? asked : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}
bool user_chose_threads() { return std::getenv("OMP_NUM_THREADS") != nullptr; }
void run_team(int team, void (*task)(void*, std::int64_t), void* argument) { ThreadPool::instance().run(team, task, argument); }
#else
bool in_foreign_region() { return omp_in_parallel() != 0; }
int system_threads() { return std::max(1, omp_get_max_threads()); }
/// OMP_NUM_THREADS or omp_set_num_threads() given: what libgomp would use is then not simply what affinity leaves.
bool user_chose_threads() { return omp_get_max_threads() != omp_get_num_procs(); }
void run_team(int team, void (*task)(void*, std::int64_t), void* argument) {
#pragma omp parallel num_threads(team)
  for (int i = omp_get_thread_num(); i < team; i += omp_get_num_threads()) task(argument, i);
}
#endif

int default_threads() {
  static const int count = [] {
    const int system = system_threads(), quota = platform::cgroup_cpu_limit();
    return user_chose_threads() || quota == 0 ? system : std::min(system, quota);
  }();
  return count;
}

/// One parallel_ranges call, shared by the threads that work on it.
struct Job {
  RangeFunction run;
  void* body;
  std::int64_t count, chunks;
  std::atomic<bool> failed{false};
  std::exception_ptr error;  // of the first chunk that failed; written by the thread that set `failed`

  void operator()(std::int64_t chunk) {
    if (chunk >= chunks || failed.load(std::memory_order_relaxed)) return;
    InsideGuard inside;
    const std::int64_t share = count / chunks, more = count % chunks;  // the first `more` chunks take one extra
    const std::int64_t begin = chunk * share + std::min(chunk, more);
    try {
      run(body, begin, begin + share + (chunk < more ? 1 : 0));
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
    }
  }
};

void run_chunk(void* job, std::int64_t chunk) { (*static_cast<Job*>(job))(chunk); }

}  // namespace

int num_threads() {
  if (t_inside || g_serial.load(std::memory_order_relaxed) || in_foreign_region()) return 1;
  const int requested = g_requested.load(std::memory_order_relaxed);
  return requested > 0 ? requested : default_threads();
}

void set_num_threads(int count) { g_requested.store(std::max(0, count), std::memory_order_relaxed); }

void set_parallel_for(ParallelHook hook) { g_hook.store(hook, std::memory_order_release); }

void parallel_ranges(std::int64_t count, std::int64_t grain, RangeFunction run, void* body) {
  if (count <= 0) return;
  const int team = num_threads();
  const std::int64_t chunks = std::min<std::int64_t>(team, (count - 1) / std::max<std::int64_t>(1, grain) + 1);
  if (chunks == 1) return run(body, 0, count);

  Job job{.run = run, .body = body, .count = count, .chunks = chunks, .failed = false, .error = nullptr};
  if (const ParallelHook hook = g_hook.load(std::memory_order_acquire)) {
    hook(chunks, &run_chunk, &job);
  } else {
    static const bool registered = (platform::at_fork_in_child(&serial_after_fork), true);
    (void)registered;
    g_team_started.store(true, std::memory_order_relaxed);
    run_team(team, &run_chunk, &job);  // always the whole team: libgomp would stop and start threads when its size changes
  }
  if (job.failed) std::rethrow_exception(job.error);
}

}  // namespace tensorlite::cpu
