// A walk through choosing, watching and limiting devices, after TensorFlow's GPU guide. Each step prints its code and what it does.
// Without a GPU every step says so and goes on; --simulate shows them on two pretended GPUs.
#include <tensorlite/tensorlite.hpp>

#include <CLI/CLI.hpp>

#include <cstdlib>
#include <iostream>

namespace {

namespace tl = tensorlite;

void step(const char* title, const char* code) {
  static int number = 0;
  std::cout << "\n" << ++number << ". " << title << "\n" << code << std::endl;
}

/// Whether there is a GPU to show the step with.
bool has_gpu() {
  if (!tl::config::list_physical_devices("GPU").empty()) return true;
  std::cout << "-> no GPU here, nothing to do" << std::endl;
  return false;
}

void count_gpus() {
  step("Count the GPUs", R"(   auto gpus = tl::config::list_physical_devices("GPU");
   std::cout << "Num GPUs Available: " << gpus.size() << '\n';)");
  std::cout << "-> Num GPUs Available: " << tl::config::list_physical_devices("GPU").size() << std::endl;
}

void choose_visible() {
  step("Show this process only the first GPU", R"(   tl::config::set_visible_devices({gpus[0]}, "GPU");)");
  if (!has_gpu()) return;
  const auto gpus = tl::config::list_physical_devices("GPU");
  tl::config::set_visible_devices({gpus[0]}, "GPU");
  std::cout << "-> " << gpus.size() << " Physical GPUs, " << tl::config::get_visible_devices("GPU").size() << " visible" << std::endl;
}

void let_memory_grow() {
  step("Let its memory grow as needed", "   tl::config::set_memory_growth(gpus[0], true);");
  if (!has_gpu()) return;
  const auto gpu = tl::config::get_visible_devices("GPU")[0];
  tl::config::set_memory_growth(gpu, true);
  std::cout << "-> memory growth of " << gpu.name << ": " << (tl::config::get_memory_growth(gpu) ? "on" : "off") << std::endl;
}

void split() {
  step("Split it into two logical devices of 64 MiB",
       R"(   tl::config::set_logical_device_configuration(gpus[0], {{.memory_limit = 64}, {.memory_limit = 64}});
   auto logical = tl::config::list_logical_devices("GPU");)");
  if (!has_gpu()) return;
  const auto gpus = tl::config::get_visible_devices("GPU");
  tl::config::set_logical_device_configuration(gpus[0], {{.memory_limit = 64}, {.memory_limit = 64}});
  const auto logical = tl::config::list_logical_devices("GPU");
  std::cout << "-> " << gpus.size() << " Physical GPUs, " << logical.size() << " Logical GPUs" << std::endl;
}

void multiply_automatically() {
  step("Log where each op runs, and let the library choose", R"(   tl::debugging::set_log_device_placement(true);
   tl::Tensor a{{1.f, 2.f, 3.f}, {4.f, 5.f, 6.f}}, b{{1.f, 2.f}, {3.f, 4.f}, {5.f, 6.f}};
   std::cout << tl::matmul(a, b) << '\n';)");
  tl::debugging::set_log_device_placement(true);
  const tl::Tensor a{{1.f, 2.f, 3.f}, {4.f, 5.f, 6.f}}, b{{1.f, 2.f}, {3.f, 4.f}, {5.f, 6.f}};
  std::cout << tl::matmul(a, b) << std::endl;
}

void multiply_on_the_cpu() {
  step("Pin work to the CPU", R"(   {
     tl::DeviceScope cpu("/CPU:0");
     c = tl::Tensor{{1.f, 2.f, 3.f}, {4.f, 5.f, 6.f}};
     d = tl::Tensor{{1.f, 2.f}, {3.f, 4.f}, {5.f, 6.f}};
     tl::matmul(c, d);
   }
   tl::matmul(c, d);  // outside: on the GPU when there is one, after copying)");
  tl::Tensor c, d;
  {
    tl::DeviceScope cpu("/CPU:0");
    c = tl::Tensor{{1.f, 2.f, 3.f}, {4.f, 5.f, 6.f}};
    d = tl::Tensor{{1.f, 2.f}, {3.f, 4.f}, {5.f, 6.f}};
    tl::matmul(c, d);
  }
  tl::matmul(c, d);
}

void multiply_on_the_gpu() {
  step("Pin work to the second logical GPU", R"(   tl::DeviceScope gpu("/GPU:1");
   auto e = tl::ones({2, 2});
   std::cout << tl::matmul(e, e) << '\n';)");
  try {
    tl::DeviceScope gpu("/GPU:1");
    const tl::Tensor e = tl::ones({2, 2});
    std::cout << tl::matmul(e, e) << std::endl;
  } catch (const tl::DeviceUnavailableError& error) {
    const std::string text = error.what();
    std::cout << "-> DeviceUnavailableError: " << text.substr(0, text.find('\n')) << std::endl;
  }
}

void fall_back() {
  step("Ask for a device that is not there, with soft placement", R"(   tl::config::set_soft_device_placement(true);
   tl::DeviceScope absent("/GPU:7");
   tl::ones({2, 2});)");
  tl::config::set_soft_device_placement(true);
  {
    tl::DeviceScope absent("/GPU:7");
    tl::ones({2, 2});
  }
  tl::config::set_soft_device_placement(false);
  tl::debugging::set_log_device_placement(false);
}

void watch_memory() {
  step("Watch the memory", R"(   tl::config::trim(device);  // gives wholly free memory back to the driver
   auto x = tl::empty({1024, 1024});
   auto info = tl::config::get_memory_info(device);)");
  const std::string device = tl::config::list_physical_devices("GPU").empty() ? "CPU:0" : "GPU:0";
  const auto show = [&](const char* when) {
    const tl::MemoryInfo info = tl::config::get_memory_info(device);
    std::cout << "-> " << device << " " << when << ": current " << info.current << ", peak " << info.peak << ", reserved " << info.reserved
              << std::endl;
  };
  tl::config::trim(device);
  tl::config::reset_memory_stats(device);
  show("before");
  {
    const tl::Tensor x = tl::empty({1024, 1024});
    show("with 4 MiB more");
  }
  show("after");
  std::cout << "-> trim gave back " << tl::config::trim(device) << " bytes" << std::endl;
}

void come_too_late() {
  step("A setting that comes too late", "   tl::config::set_memory_growth(gpus[0], false);");
  if (!has_gpu()) return;
  try {
    tl::config::set_memory_growth(tl::config::get_visible_devices("GPU")[0], false);
  } catch (const tl::AlreadyInitializedError& error) { std::cout << "-> AlreadyInitializedError: " << error.what() << std::endl; }
}

void put_variable(const char* name, const char* value) {
#if defined(_WIN32)
  _putenv_s(name, value);
#else
  setenv(name, value, 1);
#endif
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Shows how to choose, watch and limit devices."};
  bool simulate = false;
  app.add_flag("--simulate", simulate, "Show it on two simulated GPUs");
  CLI11_PARSE(app, argc, argv);
  if (simulate) {
#if defined(TENSORLITE_SIMULATED_GPU_PLUGIN)
    put_variable("TENSORLITE_CUDA_PLUGIN", TENSORLITE_SIMULATED_GPU_PLUGIN);
    put_variable("TENSORLITE_SIMULATED_GPUS", "2x256");
#else
    std::cerr << "device_tour: the simulated GPUs belong to the tests; build with TENSORLITE_BUILD_TESTS=ON\n";
    return 1;
#endif
  }
  try {
    for (const auto show : {count_gpus, choose_visible, let_memory_grow, split, multiply_automatically, multiply_on_the_cpu,
                            multiply_on_the_gpu, fall_back, watch_memory, come_too_late})
      show();
  } catch (const tl::Error& error) {
    std::cerr << "device_tour: " << error.what() << '\n';
    return 1;
  }
}
