// How the CPU's kernels share work among threads: callers of many kinds, a host's own pool, exceptions, fork.
#include "kernel_test.hpp"

#include <atomic>
#include <thread>

#if defined(__unix__)
#include <sys/wait.h>
#include <unistd.h>
#endif

using namespace kernel_test;

namespace {

constexpr std::int64_t kLong = 300000;  // long enough for several threads

/// gelu of a long array: its sum is the same in whatever way the work was shared out.
Array long_result(unsigned seed) {
  const Array in = Array::random(kFloat32, {kLong}, seed);
  Array out(kFloat32, {kLong});
  TL_KERNEL(unary, UnaryOp::Gelu, out, in, UnaryParams{});
  return out;
}

/// Restores the defaults when a test ends.
struct Defaults {
  ~Defaults() {
    config::set_parallel_for(nullptr);
    config::set_num_threads(0);
  }
};

std::atomic<std::int64_t> g_tasks{0};

/// A host's pool: a thread per task.
void host_pool(std::int64_t tasks, void (*task)(void*, std::int64_t), void* argument) {
  std::vector<std::thread> threads;
  for (std::int64_t i = 0; i < tasks; ++i)
    threads.emplace_back([=] {
      task(argument, i);
      ++g_tasks;
    });
  for (std::thread& t : threads) t.join();
}

}  // namespace

TEST_CASE("the number of threads is what was set, or at least 1", "[cpu]") {
  const Defaults defaults;
  config::set_num_threads(3);
  CHECK(config::get_num_threads() == 3);
  config::set_num_threads(0);
  CHECK(config::get_num_threads() >= 1);
}

TEST_CASE("results are the same for 1, 2, 3 and 8 threads", "[cpu]") {
  const Defaults defaults;
  config::set_num_threads(1);
  const Array expected = long_result(1);
  for (const int threads : {2, 3, 8, 2}) {
    config::set_num_threads(threads);
    CHECK(long_result(1).same_bits(expected));
  }
}

TEST_CASE("many threads may compute at once", "[cpu]") {
  const Defaults defaults;
  config::set_num_threads(2);
  const Array expected[2] = {long_result(0), long_result(1)};
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (unsigned t = 0; t < 6; ++t)
    callers.emplace_back([&, t] {
      for (int round = 0; round < 3; ++round) wrong += !long_result(t % 2).same_bits(expected[t % 2]);
    });
  for (std::thread& caller : callers) caller.join();
  CHECK(wrong == 0);
}

TEST_CASE("a host's thread pool can do the work", "[cpu]") {
  const Defaults defaults;
  config::set_num_threads(4);
  const Array expected = long_result(1);
  g_tasks = 0;
  config::set_parallel_for(&host_pool);
  CHECK(long_result(1).same_bits(expected));
  CHECK(g_tasks == 4);
  config::set_parallel_for(nullptr);
  CHECK(long_result(1).same_bits(expected));
  CHECK(g_tasks == 4);
}

TEST_CASE("an exception in any thread reaches the caller, and the next op works", "[cpu]") {
  const Defaults defaults;
  config::set_num_threads(2);
  Array weights(kFloat32, {kLong}), first(kFloat32, {kLong}), wrong(kInt32, {kLong});
  const View parameters[] = {first.view(), weights.view()}, gradients[] = {first.view(), wrong.view()};
  CHECK_THROWS_AS(
      [&] {
        TL_KERNEL(optimizer_step, OptimizerKind::sgd, std::span(parameters), std::span(gradients), std::span<const View>(),
                  (OptimizerParams{.lr = 1, .step = 1}));
      }(),
      DTypeError);
  config::set_num_threads(1);
  const Array expected = long_result(2);
  config::set_num_threads(2);
  CHECK(long_result(2).same_bits(expected));
}

#if defined(__unix__)
TEST_CASE("a forked child computes, on one thread when the parent had a team", "[cpu]") {
  const Defaults defaults;
  config::set_num_threads(2);
  const Array expected = long_result(3);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(long_result(3).same_bits(expected) ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}
#endif
