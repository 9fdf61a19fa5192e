// The plug-in: found, refused, diagnosed; its faults; what listing devices must not do.
#include "own_process.hpp"
#include "simulated_gpu/simulated_gpu.hpp"
#include "temp_folder.hpp"

#include <tensorlite/tensorlite.hpp>

#include <csignal>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tl = tensorlite;
using namespace tl::config;

namespace {

/// A function of the plug-in that the library has loaded.
template <class Function> Function plug_in(const char* name) {
  void* library = dlopen(TENSORLITE_SIMULATED_GPU_PLUGIN, RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(library);
  return reinterpret_cast<Function>(dlsym(library, name));
}

Environment faulty(const char* faults, const char* gpus = "2x256") { return simulated(gpus, {{"TENSORLITE_SIMULATED_FAULTS", faults}}); }

/// The first finding of a layer that is not ok.
tl::Finding problem(const std::string& layer) {
  for (const tl::Finding& finding : diagnose_gpus())
    if (!finding.ok && finding.layer == layer) return finding;
  FAIL("no finding for " << layer);
  return {};
}

/// CPU work succeeds, there is no GPU, and asking for one says `reason`.
void check_cpu_only(const std::string& reason) {
  CHECK(list_physical_devices("GPU").empty());
  CHECK((tl::ones({2}) + tl::ones({2})).to_vector<float>() == std::vector<float>{2, 2});
  CHECK(tl::ones({2}).device() == tl::cpu_device());
  for (const std::string& text : {error_text<tl::DeviceUnavailableError>([] { tl::DeviceScope scope("GPU:0"); }),
                                  error_text<tl::DeviceUnavailableError>([] { require_gpu(); }),
                                  error_text<tl::DeviceUnavailableError>([] { tl::ones({2}, {.device = tl::gpu_device()}); })}) {
    INFO(text);
    CHECK(contains(text, "GPU:0 is not present; present: CPU:0"));
    CHECK(contains(text, reason));
  }
}

}  // namespace

TEST_CASE("listing devices and diagnosing create no context and take no memory") {
  if (own_process(simulated("2x256"))) return;
  list_physical_devices();
  const auto contexts = plug_in<SimulatedContextsFunction>(kSimulatedContexts);
  const auto used = plug_in<SimulatedUsedFunction>(kSimulatedUsed);
  list_logical_devices();
  diagnose_gpus();
  require_gpu();
  get_device_details({"/physical_device:GPU:1", "GPU"});
  {
    tl::DeviceScope scope("GPU:1");
    tl::DeviceScope cpu("CPU:0");
    tl::ones({2}) + tl::ones({2});
  }
  for (int i : {0, 1}) {
    CHECK(contexts(i) == 0);
    CHECK(used(i) == 0);
  }
  tl::ones({2});
  CHECK(contexts(0) == 1);
  CHECK(used(0) > 0);
  CHECK(contexts(1) == 0);
}

TEST_CASE("an invisible GPU gets no context") {
  if (own_process(simulated("2x256"))) return;
  set_visible_devices({list_physical_devices("GPU")[1]}, "GPU");
  tl::ones({2});
  CHECK(plug_in<SimulatedContextsFunction>(kSimulatedContexts)(0) == 0);
  CHECK(plug_in<SimulatedContextsFunction>(kSimulatedContexts)(1) == 1);
}

TEST_CASE("two slices share one context and the kernels run on the physical device") {
  if (own_process(simulated("1x256"))) return;
  set_logical_device_configuration({"/physical_device:GPU:0", "GPU"}, {{.memory_limit = 10}, {.memory_limit = 10}});
  const tl::Tensor a = tl::ones({3}, {.device = tl::gpu_device(0)}), b = tl::ones({3}, {.device = tl::gpu_device(1)});
  CHECK((a + b).to_vector<float>() == std::vector<float>{2, 2, 2});
  CHECK(plug_in<SimulatedContextsFunction>(kSimulatedContexts)(0) == 1);
  CHECK(plug_in<SimulatedKernelsFunction>(kSimulatedKernels)(0) == 3);
}

TEST_CASE("a path that leads nowhere") {
  if (own_process({{"TENSORLITE_CUDA_PLUGIN", "/nowhere/plugin.so"}})) return;
  check_cpu_only("plug-in /nowhere/plugin.so: There is no such file.");
  CHECK(problem("plug-in").path == "/nowhere/plugin.so");
}

TEST_CASE("a file that is no library") {
  if (own_process({{"TENSORLITE_CUDA_PLUGIN", "/etc/passwd"}})) return;
  check_cpu_only("plug-in /etc/passwd: It does not load: ");
}

TEST_CASE("a library that is no plug-in") {
  if (own_process({{"TENSORLITE_CUDA_PLUGIN", "libm.so.6"}})) return;
  check_cpu_only("libm.so.6: It has no function tensorlite_backend, so it is not a tensorlite plug-in");
}

TEST_CASE("a plug-in of another build is refused with a sentence") {
  if (own_process(faulty("wrong_abi"))) return;
  check_cpu_only("It was built for another tensorlite than this " TENSORLITE_VERSION ". Install the plug-in and the library of one build.");
}

TEST_CASE("a plug-in whose libraries are missing") {
  if (own_process(faulty("missing_library"))) return;
  check_cpu_only("It cannot serve: libcublasLt.so.13: cannot open shared object file");
}

TEST_CASE("no driver") {
  if (own_process(faulty("no_driver"))) return;
  check_cpu_only("driver: No NVIDIA driver is loaded. Install the driver.");
  CHECK(problem("driver").found == "none");
}

TEST_CASE("a driver that is too old") {
  if (own_process(faulty("old_driver"))) return;
  check_cpu_only("driver: The driver serves CUDA 11.4, the runtime is 13.0. Update the driver.");
}

TEST_CASE("a GPU that no kernel is compiled for is skipped and named") {
  if (own_process(faulty("old_gpu=0"))) return;
  CHECK(list_physical_devices("GPU").size() == 1);
  CHECK(tl::ones({2}).device() == tl::gpu_device(0));
  CHECK(plug_in<SimulatedContextsFunction>(kSimulatedContexts)(0) == 0);  // GPU:0 is the driver's second
  CHECK(plug_in<SimulatedContextsFunction>(kSimulatedContexts)(1) == 1);
  const std::string text = error_text<tl::DeviceUnavailableError>([] { tl::DeviceScope scope("GPU:1"); });
  CHECK(contains(text, "GPU:1 is not present; present: CPU:0, GPU:0"));
  CHECK(
      contains(text, "GPU 0: This GPU is not used: Simulated GPU, compute capability 3.5 is not among the compiled ones: 8.0, 9.0, 10.0"));
}

TEST_CASE("the only GPU has a foreign compute capability") {
  if (own_process(faulty("old_gpu=0", "1x256"))) return;
  check_cpu_only("Simulated GPU, compute capability 3.5 is not among the compiled ones: 8.0, 9.0, 10.0");
}

TEST_CASE("a cuDNN part of another version fails convolutions alone") {
  if (own_process(faulty("cudnn_mismatch"))) return;
  CHECK(tl::matmul(tl::ones({2, 2}), tl::ones({2, 2})).to_vector<float>() == std::vector<float>{2, 2, 2, 2});
  const tl::Tensor image = tl::ones({1, 4, 4, 1}), weight = tl::ones({1, 3, 3, 1});
  const std::string text = error_text<tl::BackendError>([&] { tl::conv2d(image, weight); });
  INFO(text);
  CHECK(contains(text, "cuDNN: built for 9.10.2, loaded 9.10.2, but libcudnn_graph.so.9 found is 9.1.0"));
  CHECK(problem("cuDNN graph").found == "9.1.0");
  CHECK(tl::matmul(tl::ones({1, 1}), tl::ones({1, 1})).item<float>() == 1);
}

TEST_CASE("a failed kernel shows at the next synchronization and only there") {
  if (own_process(simulated("1x256"))) return;
  const tl::Tensor x = tl::ones({2});
  const auto fault = plug_in<SimulatedFaultFunction>(kSimulatedFault);
  fault("kernel_error=AddV2");
  x + x;
  const std::string text = error_text<tl::BackendError>([] { tl::synchronize(); });
  CHECK(contains(text, "AddV2: its kernel failed on simulated device 0"));
  tl::synchronize();
  fault("kernel_error=AddV2");
  const tl::Tensor y = x + x;
  CHECK_THROWS_AS(y.to_vector<float>(), tl::BackendError);
  CHECK((x + x).to_vector<float>() == std::vector<float>{2, 2});
}

TEST_CASE("host code that touches device memory crashes and data() refuses") {
  if (own_process(simulated("1x256"))) return;
  const tl::Tensor x = tl::ones({4});
  CHECK_THROWS_AS(x.data<float>(), tl::DeviceMismatchError);
  const pid_t pid = fork();
  if (pid == 0) {
    signal(SIGSEGV, SIG_DFL);
    const volatile float value = *x.raw().ptr<float>();
    _exit(value == 1 ? 0 : 1);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  CHECK(WIFSIGNALED(status));
}

TEST_CASE("a kernel that is given a host pointer is refused") {
  if (own_process(simulated("2x256"))) return;
  float host[4] = {};
  const tl::Tensor x = tl::ones({4}), other = tl::ones({4}, {.device = tl::gpu_device(1)});
  const auto fill = [](void* data, tl::Device device, std::int64_t n) {
    const tl::View view(data, tl::kFloat32, device, {n}, {1});
    TL_CALL((tl::detail::OpPlace{"Fill", tl::gpu_device(0)}), fill, view, 1);
  };
  fill(x.raw().data, tl::gpu_device(0), 4);
  CHECK(contains(error_text<tl::BackendError>([&] { fill(host, tl::gpu_device(0), 4); }),
                 "Fill: a pointer given to the device is not device memory"));
  CHECK(contains(error_text<tl::BackendError>([&] { fill(host, tl::cpu_device(), 4); }), "a kernel on GPU:0 was given a view of CPU:0"));
  CHECK(contains(error_text<tl::BackendError>([&] { fill(other.raw().data, tl::gpu_device(0), 4); }),
                 "device 0 was given memory of device 1"));
  CHECK(contains(error_text<tl::BackendError>([&] { fill(x.raw().data, tl::gpu_device(0), 1 << 30); }), "reaches past the end"));
}

TEST_CASE("tensors move between two GPUs and the host") {
  if (own_process(simulated("2x256"))) return;
  const tl::Tensor host = tl::from_vector(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3}, {.device = tl::cpu_device()});
  const tl::Tensor there = host.to("GPU:0").to("GPU:1").to("GPU:1");
  CHECK(there.device() == tl::gpu_device(1));
  CHECK(there.to_vector<float>() == host.to_vector<float>());
  CHECK(there.to("CPU:0").to_vector<float>() == host.to_vector<float>());
  CHECK(there.t().to("GPU:0").to_vector<float>() == std::vector<float>{1, 4, 2, 5, 3, 6});
}
