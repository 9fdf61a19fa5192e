// config:: row by row: what each call does, and each of its errors by type and text.
#include "own_process.hpp"
#include "temp_folder.hpp"

#include <tensorlite/tensorlite.hpp>

namespace tl = tensorlite;
using namespace tl::config;

namespace {

const tl::PhysicalDevice kCpu{"/physical_device:CPU:0", "CPU"};
tl::PhysicalDevice gpu(int index) { return {"/physical_device:GPU:" + std::to_string(index), "GPU"}; }

std::vector<std::string> names(const std::vector<tl::LogicalDevice>& devices) {
  std::vector<std::string> all;
  for (const auto& device : devices) all.push_back(device.name);
  return all;
}
using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("physical devices are listed without initializing anything") {
  if (own_process(simulated("2x256"))) return;
  CHECK(list_physical_devices() == std::vector<tl::PhysicalDevice>{kCpu, gpu(0), gpu(1)});
  CHECK(list_physical_devices("CPU") == std::vector<tl::PhysicalDevice>{kCpu});
  CHECK(list_physical_devices("GPU").size() == 2);
  CHECK(list_physical_devices("gpu").size() == 2);
  CHECK(list_physical_devices("TPU").empty());
  set_visible_devices({gpu(1)}, "GPU");  // still possible, and listing shows the hidden one, too
  CHECK(list_physical_devices("GPU").size() == 2);
}

TEST_CASE("without a plug-in there is a CPU and no GPU") {
  if (own_process(without_gpu())) return;
  CHECK(list_physical_devices() == std::vector<tl::PhysicalDevice>{kCpu});
  CHECK(names(list_logical_devices()) == Names{"/device:CPU:0"});
  CHECK(list_logical_devices("GPU").empty());
  CHECK(tl::zeros({2}).device() == tl::cpu_device());
  const std::string text = error_text<tl::DeviceUnavailableError>([] { require_gpu(); });
  CHECK(contains(text, "require_gpu: GPU:0 is not present; present: CPU:0"));
  CHECK(contains(text, "/nowhere/libtensorlite_cuda.so: There is no such file."));
}

TEST_CASE("logical devices initialize") {
  if (own_process(simulated("2x256"))) return;
  CHECK(names(list_logical_devices()) == Names{"/device:CPU:0", "/device:GPU:0", "/device:GPU:1"});
  CHECK(names(list_logical_devices("GPU")) == Names{"/device:GPU:0", "/device:GPU:1"});
  CHECK(list_logical_devices("TPU").empty());
  const std::string text = error_text<tl::AlreadyInitializedError>([] { set_memory_growth(gpu(0), true); });
  CHECK(text ==
        "set_memory_growth: memory growth of /physical_device:GPU:0 cannot change from false to true: the devices were initialized by call "
        "list_logical_devices; it must be set before their first use (the first op, tensor, DeviceScope, list_logical_devices or "
        "get_memory_info)");
  CHECK(!get_memory_growth(gpu(0)));
}

TEST_CASE("visible devices") {
  if (own_process(simulated("3x256"))) return;
  CHECK(get_visible_devices() == list_physical_devices());
  SECTION("a list of one type leaves the other alone and numbering follows physical order") {
    set_visible_devices({gpu(2), gpu(1)}, "GPU");
    CHECK(get_visible_devices("GPU") == std::vector<tl::PhysicalDevice>{gpu(1), gpu(2)});
    CHECK(get_visible_devices("CPU") == std::vector<tl::PhysicalDevice>{kCpu});
    set_visible_devices({kCpu, gpu(0)});
    CHECK(get_visible_devices() == std::vector<tl::PhysicalDevice>{kCpu, gpu(0)});
    CHECK(get_visible_devices("TPU").empty());
    set_visible_devices(list_physical_devices());
  }
  SECTION("errors leave the list as it was") {
    const auto text = [](std::vector<tl::PhysicalDevice> devices, const char* type) {
      return error_text<tl::ValueError>([&] { set_visible_devices(devices, type); });
    };
    CHECK(contains(text({gpu(3)}, "GPU"),
                   "set_visible_devices: '/physical_device:GPU:3' of type 'GPU' is not a device of this machine; there are: "
                   "/physical_device:CPU:0, /physical_device:GPU:0"));
    CHECK(contains(text({kCpu}, "GPU"), "/physical_device:CPU:0 is not a GPU"));
    CHECK(contains(text({{"/physical_device:GPU:0", "CPU"}}, ""), "is not a device of this machine"));
    CHECK(contains(text({gpu(0)}, "TPU"), "'TPU' is not a device type"));
    CHECK(contains(text({gpu(0)}, ""), "the CPU cannot be hidden"));
    CHECK(contains(text({}, "CPU"), "the CPU cannot be hidden"));
    CHECK(get_visible_devices() == list_physical_devices());
  }
}

TEST_CASE("all GPUs hidden") {
  if (own_process(simulated("2x256"))) return;
  set_visible_devices({}, "GPU");
  CHECK(tl::zeros({2}).device() == tl::cpu_device());
  CHECK(names(list_logical_devices()) == Names{"/device:CPU:0"});
  const std::string text = error_text<tl::DeviceUnavailableError>([] { tl::DeviceScope scope("GPU:0"); });
  CHECK(contains(text, "DeviceScope: GPU:0 is not present; present: CPU:0"));
  CHECK(contains(text, "/physical_device:GPU:0 is hidden by config::set_visible_devices"));
  CHECK_THROWS_AS(require_gpu(), tl::DeviceUnavailableError);
  set_visible_devices({}, "GPU");  // the same again
  const std::string late = error_text<tl::AlreadyInitializedError>([] { set_visible_devices({gpu(1)}, "GPU"); });
  CHECK(contains(late, "the list of visible devices cannot change from none to /physical_device:GPU:1"));
  CHECK(contains(late, "initialized by op Zeros"));
}

TEST_CASE("the visible GPU of two is GPU:0 and the hidden one stays untouched") {
  if (own_process(simulated("2x256"))) return;
  set_visible_devices({gpu(1)}, "GPU");
  CHECK(names(list_logical_devices("GPU")) == Names{"/device:GPU:0"});
  CHECK(tl::ones({3}).device() == tl::gpu_device());
  CHECK_THROWS_AS(tl::DeviceScope("GPU:1"), tl::DeviceUnavailableError);
}

TEST_CASE("memory growth is per GPU and frozen by first use") {
  if (own_process(simulated("2x256"))) return;
  CHECK(!get_memory_growth(gpu(0)));
  set_memory_growth(gpu(0), true);
  CHECK(get_memory_growth(gpu(0)));
  CHECK(!get_memory_growth(gpu(1)));
  const std::string cpu = error_text<tl::ValueError>([] { set_memory_growth(kCpu, true); });
  CHECK(contains(cpu, "set_memory_growth: /physical_device:CPU:0 is a CPU"));
  CHECK_THROWS_AS(get_memory_growth(kCpu), tl::ValueError);
  CHECK_THROWS_AS(set_memory_growth(gpu(2), true), tl::ValueError);
  CHECK_THROWS_AS(get_memory_growth(gpu(2)), tl::ValueError);
  tl::ones({4});
  {
    tl::DeviceScope second("GPU:1");
    tl::ones({4});
  }
  set_memory_growth(gpu(0), true);  // the same value twice is nothing
  const std::string late = error_text<tl::AlreadyInitializedError>([] { set_memory_growth(gpu(0), false); });
  CHECK(
      contains(late, "memory growth of /physical_device:GPU:0 cannot change from true to false: the devices were initialized by op Ones"));
  CHECK(get_memory_growth(gpu(0)));
  CHECK(get_memory_info("GPU:0").reserved == 2 << 20);
  CHECK(get_memory_info("GPU:1").reserved == 232 << 20);  // 256 MiB less the context and a sixteenth
}

TEST_CASE("growth with no GPU present is an error that says so") {
  if (own_process(without_gpu())) return;
  const std::string text = error_text<tl::ValueError>([] { set_memory_growth(gpu(0), true); });
  CHECK(contains(text, "'/physical_device:GPU:0' of type 'GPU' is not a device of this machine; there are: /physical_device:CPU:0"));
}

TEST_CASE("growth switched on by the environment") {
  // The parent runs a child per name; a child runs the test once.
  for (const char* name : {"TENSORLITE_FORCE_GPU_ALLOW_GROWTH", "TF_FORCE_GPU_ALLOW_GROWTH"}) {
    if (own_process(simulated("1x256", {{name, "true"}}))) continue;
    CHECK(get_memory_growth(gpu(0)));
    tl::ones({4});
    CHECK(get_memory_info("GPU:0").reserved == 2 << 20);
    return;
  }
}

TEST_CASE("growth switched off by the environment") {
  if (own_process(simulated("1x256", {{"TENSORLITE_FORCE_GPU_ALLOW_GROWTH", "false"}, {"TF_FORCE_GPU_ALLOW_GROWTH", "true"}}))) return;
  set_memory_growth(gpu(0), true);
  tl::ones({4});
  CHECK(get_memory_info("GPU:0").reserved == 232 << 20);
}

TEST_CASE("another text in the growth variable is an error line and ignored") {
  if (auto child = own_process(simulated("1x256", {{"TF_FORCE_GPU_ALLOW_GROWTH", "yes"}}))) {
    const std::string line = "tensorlite: error: TF_FORCE_GPU_ALLOW_GROWTH=yes is ignored; write true or false\n";
    CHECK(contains(child->output, line));
    CHECK(child->output.find(line) == child->output.rfind(line));
    return;
  }
  CHECK(!get_memory_growth(gpu(0)));
  tl::ones({4});
  CHECK(get_memory_info("GPU:0").reserved == 232 << 20);
}

TEST_CASE("two slices of a GPU") {
  if (own_process(simulated("1x256"))) return;
  CHECK(get_logical_device_configuration(gpu(0)).empty());
  const std::vector<tl::LogicalDeviceConfiguration> slices{{.memory_limit = 10}, {.memory_limit = 10}};
  set_logical_device_configuration(gpu(0), slices);
  CHECK(get_logical_device_configuration(gpu(0)) == slices);
  CHECK(names(list_logical_devices("GPU")) == Names{"/device:GPU:0", "/device:GPU:1"});
  for (const char* name : {"GPU:0", "GPU:1"}) {
    tl::DeviceScope scope(name);
    const tl::Tensor x = tl::ones({1000});
    CHECK(x.device() == tl::gpu_device(name[4] - '0'));
    CHECK(get_memory_info(name).limit == 10 << 20);
    CHECK(get_memory_info(name).reserved == 10 << 20);
  }
  CHECK_THROWS_AS(tl::DeviceScope("GPU:2"), tl::DeviceUnavailableError);
  set_logical_device_configuration(gpu(0), slices);  // the same again
  for (const std::vector<tl::LogicalDeviceConfiguration>& other :
       {std::vector<tl::LogicalDeviceConfiguration>{{.memory_limit = 10}, {.memory_limit = 20}}, {{.memory_limit = 10}}, {}}) {
    const std::string late = error_text<tl::AlreadyInitializedError>([&] { set_logical_device_configuration(gpu(0), other); });
    CHECK(contains(late, "the logical device configuration of /physical_device:GPU:0 cannot change from [10 MiB, 10 MiB] to "));
  }
  CHECK(get_logical_device_configuration(gpu(0)) == slices);
}

TEST_CASE("slices that cannot be are refused at the call") {
  if (own_process(simulated("1x256"))) return;
  const auto text = [](const tl::PhysicalDevice& device, std::vector<tl::LogicalDeviceConfiguration> slices) {
    return error_text<tl::ValueError>([&] { set_logical_device_configuration(device, slices); });
  };
  CHECK(contains(text(gpu(0), {{.memory_limit = 10}, {}}), "a slice of /physical_device:GPU:0 has no memory_limit; a GPU's must have one"));
  CHECK(contains(text(gpu(0), {{.memory_limit = 0}}), "memory_limit 0 MiB of /physical_device:GPU:0 is not positive"));
  CHECK(contains(text(gpu(0), {{.memory_limit = -5}}), "memory_limit -5 MiB"));
  CHECK(contains(text(gpu(0), {{.memory_limit = 200}, {.memory_limit = 57}}),
                 "the limits [200 MiB, 57 MiB] together exceed the 256 MiB of /physical_device:GPU:0"));
  CHECK(contains(text(gpu(0), {{.memory_limit = std::numeric_limits<std::int64_t>::max()}, {.memory_limit = 1}}), "together exceed"));
  CHECK(contains(text(kCpu, {{.memory_limit = std::int64_t{1} << 40}}), "together exceed"));
  CHECK(contains(text(kCpu, std::vector<tl::LogicalDeviceConfiguration>(65)),
                 "65 slices of /physical_device:CPU:0 make 65 logical devices of type CPU; at most 64"));
  CHECK(contains(text(gpu(1), {{.memory_limit = 1}}), "is not a device of this machine"));
  CHECK_THROWS_AS(get_logical_device_configuration(gpu(1)), tl::ValueError);
  set_logical_device_configuration(gpu(0), {{.memory_limit = 200}, {.memory_limit = 56}});
  set_logical_device_configuration(gpu(0), {});
  CHECK(names(list_logical_devices("GPU")) == Names{"/device:GPU:0"});
}

TEST_CASE("two slices of a CPU") {
  if (own_process(without_gpu())) return;
  set_logical_device_configuration(kCpu, {{}, {.memory_limit = 64}});
  CHECK(names(list_logical_devices()) == Names{"/device:CPU:0", "/device:CPU:1"});
  for (int i : {0, 1}) {
    tl::DeviceScope scope(tl::cpu_device(i));
    const tl::Tensor x = tl::ones({2}) + tl::ones({2});
    CHECK(x.device() == tl::cpu_device(i));
    CHECK(x.to_vector<float>() == std::vector<float>{2, 2});
  }
  CHECK(get_memory_info("CPU:1").limit == 64 << 20);
  CHECK_THROWS_AS(tl::DeviceScope("CPU:2"), tl::DeviceUnavailableError);
  set_soft_device_placement(true);
  tl::DeviceScope scope("CPU:2");
  CHECK((tl::ones({2}) + tl::ones({2})).device() == tl::cpu_device(0));
}

TEST_CASE("a CPU split does not drop GPU growth and growth and limit combine") {
  if (own_process(simulated("2x256"))) return;
  set_memory_growth(gpu(0), true);
  set_logical_device_configuration(kCpu, {{}, {}});
  set_logical_device_configuration(gpu(0), {{.memory_limit = 20}});
  const tl::Tensor x = tl::ones({100});
  CHECK(x.device() == tl::gpu_device());
  CHECK(get_memory_info("GPU:0").reserved == 2 << 20);
  CHECK(get_memory_info("GPU:0").limit == 20 << 20);
  CHECK_THROWS_AS(tl::empty({6 << 20}), tl::OutOfMemoryError);  // 24 MiB
  CHECK(tl::empty({4 << 20}).defined());                        // 16 MiB
}

TEST_CASE("memory information names one device") {
  if (own_process(simulated("2x256"))) return;
  const auto text = [](std::string_view name) { return error_text<tl::ValueError>([&] { get_memory_info(name); }); };
  CHECK(contains(text("GPU:x"), "malformed"));
  CHECK(text("GPU:2") == "get_memory_info: no device matches 'GPU:2'; present: CPU:0, GPU:0, GPU:1");
  CHECK(text("GPU:*") == "get_memory_info: several devices match 'GPU:*'; name one of: CPU:0, GPU:0, GPU:1");
  CHECK(contains(text(""), "several devices match"));
  CHECK_THROWS_AS(reset_memory_stats("GPU:2"), tl::ValueError);
  CHECK_THROWS_AS(trim("GPU:2"), tl::ValueError);
  CHECK(get_memory_info("CPU").num_allocs == 0);
  CHECK(get_memory_info("CPU:*").limit > 0);
  CHECK(get_memory_info("/device:GPU:1").reserved == 0);
}

TEST_CASE("memory statistics of every device") {
  if (own_process(simulated("1x256"))) return;
  set_memory_growth(gpu(0), true);
  for (const char* name : {"CPU:0", "GPU:0"}) {
    INFO(name);
    tl::DeviceScope scope(name);
    CHECK(get_memory_info(name).reserved == 0);
    {
      const tl::Tensor a = tl::empty({1 << 20});
      const tl::Tensor b = tl::empty({10});
      const auto info = get_memory_info(name);
      CHECK(info.current == (4 << 20) + (name[0] == 'C' ? 64 : 256));
      CHECK(info.peak == info.current);
      CHECK(info.num_allocs == 2);
      CHECK(info.reserved >= info.current);
      CHECK(info.limit >= info.reserved);
      CHECK(info.largest_free_block <= info.reserved - info.current);
    }
    auto info = get_memory_info(name);
    CHECK(info.current == 0);
    CHECK(info.peak >= 4 << 20);
    CHECK(info.largest_free_block > 0);
    reset_memory_stats(name);
    info = get_memory_info(name);
    CHECK(info.peak == 0);
    CHECK(info.num_allocs == 0);
    CHECK(trim(name) == info.reserved);
    CHECK(get_memory_info(name).reserved == 0);
    CHECK(get_memory_info(name).peak_reserved == info.reserved);
    CHECK(trim(name) == 0);
  }
}

TEST_CASE("device details") {
  if (own_process(simulated("1x256"))) return;
  std::map<std::string, std::string> details;
  for (const auto& [key, value] : get_device_details(gpu(0))) details[key] = value;
  CHECK(details["device_name"] == "Simulated GPU");
  CHECK(details["compute_capability"] == "9.0");
  CHECK(details["total_memory"] == "268435456");
  CHECK(details["pci_bus_id"] == "0000:01:00.0");
  CHECK(details["uuid"] == "GPU-51a1a7ed-0000-0000-0000-000000000000");
  CHECK(details["multiprocessors"] == "8");
  CHECK(details["driver_version"] == "13.0");
  CHECK(details["runtime_version"] == "13.0");
  details.clear();
  for (const auto& [key, value] : get_device_details(kCpu)) details[key] = value;
  CHECK(!details["device_name"].empty());
  CHECK(!details["instruction_set"].empty());
  CHECK(std::stoi(details["cores_usable"]) >= 1);
  CHECK(std::stoll(details["total_memory"]) > 0);
  CHECK(contains(error_text<tl::ValueError>([] { get_device_details(gpu(1)); }), "get_device_details: '/physical_device:GPU:1'"));
}

TEST_CASE("switches can be set at any time") {
  if (own_process(without_gpu())) return;
  for (int round = 0; round < 2; ++round) {
    CHECK(!get_soft_device_placement());
    set_soft_device_placement(true);
    CHECK(get_soft_device_placement());
    set_soft_device_placement(false);
    CHECK(get_placement_policy() == tl::PlacementPolicy::automatic);
    CHECK(get_device_policy() == tl::DevicePolicy::silent);
    CHECK(get_float32_precision() == tl::Float32Precision::highest);
    set_float32_precision(tl::Float32Precision::tf32);
    CHECK(get_float32_precision() == tl::Float32Precision::tf32);
    set_float32_precision(tl::Float32Precision::highest);
    CHECK(!get_deterministic());
    set_deterministic(true);
    CHECK(get_deterministic());
    set_deterministic(false);
    CHECK(!get_autotune());
    set_autotune(true);
    CHECK(get_autotune());
    set_autotune(false);
    tl::zeros({1});  // initializes
  }
  const int threads = get_num_threads();
  CHECK(threads >= 1);
  set_num_threads(1);
  CHECK(get_num_threads() == 1);
  set_num_threads(0);
  CHECK(get_num_threads() == threads);
  CHECK(contains(error_text<tl::ValueError>([] { set_num_threads(-1); }), "set_num_threads: -1 threads"));
}

TEST_CASE("an unknown instruction set is an error line and the default") {
  if (auto child = own_process(without_gpu({{"TENSORLITE_CPU_ISA", "avx9"}}))) {
    CHECK(contains(child->output, "tensorlite: error: TENSORLITE_CPU_ISA=avx9 is unknown"));
    return;
  }
  CHECK(tl::ones({2}).to_vector<float>() == std::vector<float>{1, 1});
}

TEST_CASE("the log level is read at initialization") {
  if (auto child = own_process(without_gpu({{"TENSORLITE_LOG", "debug"}}))) {
    CHECK(contains(child->output, "tensorlite: debug: op Ones on CPU:0: "));
    return;
  }
  tl::ones({2});
}

TEST_CASE("an unknown log level is an error line") {
  if (auto child = own_process(without_gpu({{"TENSORLITE_LOG", "loud"}}))) {
    CHECK(contains(child->output, "tensorlite: error: TENSORLITE_LOG=loud is ignored; write error, warn, info or debug"));
    return;
  }
  tl::ones({2});
}
