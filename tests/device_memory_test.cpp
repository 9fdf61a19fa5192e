// Memory as a user meets it: out of memory and on with it, misuse, the pool under CPU tensors, static lifetime, fork.
#include "own_process.hpp"
#include "temp_folder.hpp"

#include <tensorlite/tensorlite.hpp>

#include <algorithm>
#include <atomic>
#include <thread>
#include <sys/resource.h>
#include <unistd.h>

namespace tl = tensorlite;
using namespace tl::config;

namespace {

std::string out_of_memory(const tl::Dims& sizes) {
  return error_text<tl::OutOfMemoryError>([&] { tl::empty(sizes); });
}

// A50: tensors of every static lifetime, filled by the tests below in processes of their own.
tl::Tensor g_tensor;
thread_local tl::Tensor t_tensor;
tl::Tensor& function_static() {
  static tl::Tensor tensor;
  return tensor;
}

}  // namespace

TEST_CASE("out of memory says all figures and the next op works") {
  if (own_process(simulated("1x256"))) return;
  set_logical_device_configuration({"/physical_device:GPU:0", "GPU"}, {{.memory_limit = 64}});
  for (const char* name : {"CPU:0", "GPU:0"}) {
    tl::DeviceScope scope(name);
    const tl::Tensor kept = tl::ones({1 << 20});
    const auto before = get_memory_info(name);
    const std::string text = out_of_memory({250, 1000, 1000, 1000});  // 10^12 bytes
    INFO(text);
    CHECK(contains(text, std::string("Empty: out of memory on ") + name));
    CHECK(contains(text, "requested 931.3 GiB (1000000000000 B)"));
    CHECK(contains(text, "in use 4.0 MiB (4194304 B)"));
    for (const char* figure :
         {"reserved ", "limit ", "largest free block ", "driver-free ", "largest live blocks:\n  4.0 MiB (4194304 B) x 1\n"})
      CHECK(contains(text, figure));
    CHECK(std::count(text.begin(), text.end(), '\n') < 20);
    const auto after = get_memory_info(name);
    CHECK(after.current == before.current);
    CHECK(after.reserved == before.reserved);
    CHECK((tl::ones({4}) + tl::ones({4})).to_vector<float>() == std::vector<float>{2, 2, 2, 2});
    CHECK(kept.to_vector<float>()[12345] == 1);
  }
}

TEST_CASE("the report stays short with many live sizes") {
  if (own_process(simulated("1x256"))) return;
  std::vector<tl::Tensor> tensors;
  for (std::int64_t i = 1; i <= 100; ++i) tensors.push_back(tl::empty({i * 64}));
  const std::string text = out_of_memory({1000, 1000, 1000});
  CHECK(std::count(text.begin(), text.end(), '\n') < 20);
  CHECK(contains(text, "25.0 KiB (25600 B) x 1"));
}

TEST_CASE("an op that runs out of memory names itself and changes nothing") {
  if (own_process(simulated("1x64"))) return;
  const tl::Tensor column = tl::ones({4096, 1}), row = tl::ones({1, 4096});
  const auto before = get_memory_info("GPU:0").current;
  const std::string text = error_text<tl::OutOfMemoryError>([&] { tl::matmul(column, row); });  // 64 MiB
  CHECK(contains(text, "MatMul: out of memory on GPU:0: requested 64.0 MiB"));
  CHECK(get_memory_info("GPU:0").current == before);
  CHECK(tl::matmul(tl::ones({1, 2}), tl::ones({2, 1})).item<float>() == 2);
}

TEST_CASE("fragmentation on a device with a limit of 256 MiB") {
  if (own_process(simulated("1x512"))) return;
  const tl::PhysicalDevice gpu{"/physical_device:GPU:0", "GPU"};
  set_logical_device_configuration(gpu, {{.memory_limit = 256}});
  std::vector<tl::Tensor> tensors;
  for (int i = 0; i < 16; ++i) tensors.push_back(tl::empty({4 << 20}));
  for (std::size_t i = 0; i < 16; i += 2) tensors[i] = {};
  const std::string text = out_of_memory({8 << 20});
  CHECK(contains(text, "requested 32.0 MiB"));
  CHECK(contains(text, "in use 128.0 MiB"));
  CHECK(contains(text, "reserved 256.0 MiB"));
  CHECK(contains(text, "largest free block 16.0 MiB"));
  tensors.clear();
  CHECK(tl::empty({64 << 20}).defined());
}

TEST_CASE("a driver that refuses once does not fail the op") {
  if (own_process(simulated("1x256", {{"TENSORLITE_SIMULATED_FAULTS", "map_failure=1"}}))) return;
  CHECK(tl::ones({4}).to_vector<float>() == std::vector<float>{1, 1, 1, 1});
  CHECK(get_memory_info("GPU:0").reserved < 232 << 20);  // it was asked for a tenth less
}

TEST_CASE("0 bytes are no allocation") {
  if (own_process(simulated("1x256"))) return;
  const auto before = get_memory_info("GPU:0").num_allocs;
  const tl::Tensor nothing = tl::empty({0, 5});
  CHECK(nothing.raw().data == nullptr);
  CHECK((nothing + nothing).numel() == 0);
  CHECK(get_memory_info("GPU:0").num_allocs == before);
}

TEST_CASE("a foreign or twice freed pointer is logged and changes nothing") {
  if (auto child = own_process(without_gpu())) {
    const std::string part = "is not a live block of this device (a foreign pointer, or freed twice)\n";
    const std::size_t first = child->output.find(part);
    CHECK(first != std::string::npos);
    CHECK(child->output.find(part, first + 1) != std::string::npos);
    CHECK(contains(child->output, "tensorlite: error: release on CPU:0: 0x"));
    return;
  }
  void* block = tl::detail::allocate(tl::cpu_device(), 100);
  int foreign = 0;
  tl::detail::release(tl::cpu_device(), &foreign);
  tl::detail::release(tl::cpu_device(), block);
  tl::detail::release(tl::cpu_device(), block);
  CHECK(get_memory_info("CPU:0").current == 0);
}

TEST_CASE("large CPU results reuse their pages") {
  if (own_process(without_gpu())) return;
  const tl::Tensor x = tl::ones({10 << 18});  // 10 MiB
  const auto faults = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
  };
  for (int i = 0; i < 4; ++i) x + x;
  const long before = faults();
  for (int i = 0; i < 20; ++i) x + x;
  CHECK(faults() - before < 2560);  // 20 results, fewer faults than one has pages
}

TEST_CASE("tensors are aligned for any vector unit") {
  for (std::int64_t n : {1, 3, 17, 1000, 100000}) {
    const tl::Tensor x = tl::empty({n}, {.device = tl::cpu_device()});
    CHECK(reinterpret_cast<std::uintptr_t>(x.raw().data) % 64 == 0);
  }
}

TEST_CASE("tensors of static lifetime die quietly") {
  if (auto child = own_process(simulated("1x256"))) {
    CHECK(!contains(child->output, "tensorlite:"));
    CHECK(!contains(child->output, "terminate"));
    return;
  }
  for (tl::Tensor* tensor : {&g_tensor, &t_tensor, &function_static()}) *tensor = tl::ones({100}) + tl::ones({100});
  CHECK(g_tensor.device() == tl::gpu_device());
}

TEST_CASE("the CPU works in a forked child and a GPU used before throws there") {
  if (own_process(simulated("1x256"))) return;
  const tl::Tensor kept = tl::ones({4});
  CHECK(kept.device() == tl::gpu_device());
  const auto child = [&] {
    tl::Tensor mine = kept;
    mine = {};  // releasing is no use of the device
    const std::string text = error_text<tl::DeviceUnavailableError>([] { tl::ones({4}); });
    if (!contains(text, "GPU:0 cannot be used in a child process: the parent used it before fork()")) return 1;
    if (error_text<tl::DeviceUnavailableError>([&] { kept.to_vector<float>(); }).empty()) return 2;
    tl::DeviceScope scope("CPU:0");
    const std::vector<float> sum = (tl::ones({4}) + tl::ones({4})).to_vector<float>();
    return sum == std::vector<float>{2, 2, 2, 2} ? 0 : 3;
  };
  CHECK(in_fork(child) == 0);
  CHECK((kept + kept).to_vector<float>() == std::vector<float>{2, 2, 2, 2});  // the parent goes on
}

TEST_CASE("a GPU that was only listed works in a forked child") {
  if (own_process(simulated("1x256"))) return;
  CHECK(list_physical_devices("GPU").size() == 1);
  CHECK(list_logical_devices("GPU").size() == 1);
  CHECK(in_fork([] { return tl::ones({4}).to_vector<float>() == std::vector<float>{1, 1, 1, 1} ? 0 : 1; }) == 0);
}

// The sanitizers' own allocators may be locked in the child of a process with threads.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("fork while other threads allocate leaves the child working") {
  if (own_process(without_gpu())) return;
  // The forking thread has used the library before: the C library may not be in the middle of handing it its thread-local storage.
  CHECK(tl::empty({1}).numel() == 1);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      while (!stop) tl::empty({100});
    });
  for (int i = 0; i < 30; ++i)
    CHECK(in_fork([] {
            for (int n = 0; n < 100; ++n) tl::empty({n});
            return 0;
          }) == 0);
  stop = true;
  for (std::thread& thread : threads) thread.join();
}
#endif

TEST_CASE("the seed and the state of the random numbers") {
  tl::manual_seed(7);
  CHECK(tl::get_rng_state().seed == 7);
  const tl::PhiloxKey first = tl::next_philox_key(), second = tl::next_philox_key();
  CHECK(first.seed == 7);
  CHECK(first.offset != second.offset);
  const tl::PhiloxKey state = tl::get_rng_state();
  const tl::PhiloxKey third = tl::next_philox_key();
  tl::set_rng_state(state);
  CHECK(tl::next_philox_key().offset == third.offset);
  tl::manual_seed(7);
  CHECK(tl::next_philox_key().offset == first.offset);
}
