// A team of std::thread for builds without OpenMP. Included by parallel.cpp only.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace tensorlite::cpu {
namespace {

class ThreadPool {
 public:
  using Task = void (*)(void* argument, std::int64_t i);

  static ThreadPool& instance() {
    static ThreadPool* pool = new ThreadPool;  // never destroyed: a host's static destructor may still compute
    return *pool;
  }

  /// task(argument, 0) on this thread and 1 .. team - 1 on others. One caller at a time; another runs its tasks alone.
  void run(int team, Task task, void* argument) {
    std::unique_lock<std::mutex> turn(turn_, std::try_to_lock);
    if (!turn.owns_lock()) {
      for (int i = 0; i < team; ++i) task(argument, i);
      return;
    }
    start(team, task, argument);
    work();
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [&] { return pending_ == 0; });
  }

 private:
  void start(int team, Task task, void* argument) {
    std::lock_guard<std::mutex> lock(mutex_);
    while (static_cast<int>(threads_.size()) < team - 1) threads_.emplace_back([this] { serve(); });
    task_ = task;
    argument_ = argument;
    next_ = 0;
    team_ = pending_ = team;
    wake_.notify_all();
  }
  void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (next_ < team_) {
      const std::int64_t mine = next_++;
      const Task task = task_;
      void* argument = argument_;
      lock.unlock();
      task(argument, mine);
      lock.lock();
      if (--pending_ == 0) done_.notify_all();
    }
  }
  void serve() {
    for (;;) {
      {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, [&] { return next_ < team_; });
      }
      work();
    }
  }

  std::mutex turn_, mutex_;
  std::condition_variable wake_, done_;
  std::vector<std::thread> threads_;
  Task task_ = nullptr;
  void* argument_ = nullptr;
  std::int64_t next_ = 0, team_ = 0, pending_ = 0;
};

}  // namespace
}  // namespace tensorlite::cpu
