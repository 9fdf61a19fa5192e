// Where ops run: scopes, policies, implicit copies, soft placement, the log, threads.
#include "own_process.hpp"
#include "temp_folder.hpp"

#include <tensorlite/tensorlite.hpp>

#include <atomic>
#include <mutex>
#include <thread>

namespace tl = tensorlite;
using tl::DeviceScope;

namespace {

/// Every placement while it lives.
struct Events {
  std::vector<tl::PlacementEvent> all;
  std::mutex mutex;
  Events() {
    tl::debugging::set_log_sink([this](const tl::PlacementEvent& event) {
      std::lock_guard guard(mutex);
      all.push_back(event);
    });
  }
  ~Events() { tl::debugging::set_log_sink(nullptr); }
};

tl::Tensor small() { return tl::ones({2, 3}); }

}  // namespace

TEST_CASE("creation and computation happen on the scope's device") {
  if (own_process(simulated("2x256"))) return;
  CHECK(small().device() == tl::gpu_device(0));
  {
    DeviceScope cpu("/CPU:0");
    CHECK(small().device() == tl::cpu_device());
    {
      DeviceScope gpu("/device:GPU:1");
      CHECK((small() + small()).device() == tl::gpu_device(1));
      {
        DeviceScope same("");  // no constraint: the outer scope's
        CHECK(small().device() == tl::gpu_device(1));
        DeviceScope job("/job:localhost/replica:0");
        CHECK(small().device() == tl::gpu_device(1));
        DeviceScope type("cpu");  // a new type resets the index: CPU:0, not CPU:1
        CHECK(small().device() == tl::cpu_device());
      }
      DeviceScope none(std::nullopt);  // automatic again
      CHECK(small().device() == tl::gpu_device(0));
    }
    CHECK(small().device() == tl::cpu_device());
  }
  CHECK(small().device() == tl::gpu_device(0));
  DeviceScope any("GPU:*");
  CHECK(small().device() == tl::gpu_device(0));
  DeviceScope device(tl::gpu_device(1));
  CHECK(small().device() == tl::gpu_device(1));
}

TEST_CASE("a scope on a device that is not there throws at once and lists those that are") {
  if (own_process(simulated("2x256"))) return;
  const auto text = [](const char* name) { return error_text<tl::DeviceUnavailableError>([&] { DeviceScope scope(name); }); };
  CHECK(text("GPU:7") == "DeviceScope: GPU:7 is not present; present: CPU:0, GPU:0, GPU:1");
  CHECK(text("GPU:65536") == "DeviceScope: GPU:65536 is not present; present: CPU:0, GPU:0, GPU:1");  // not GPU:0, cut to 16 bits
  CHECK(text("CPU:1") == "DeviceScope: CPU:1 is not present; present: CPU:0, GPU:0, GPU:1");
  CHECK_THROWS_AS(DeviceScope(tl::gpu_device(7)), tl::DeviceUnavailableError);
  CHECK_THROWS_AS(tl::ones({2}, {.device = tl::gpu_device(2)}), tl::DeviceUnavailableError);
  CHECK_THROWS_AS(small().to("GPU:65536"), tl::DeviceUnavailableError);
  for (const char* name : {"gpu:-1", "GPU:x", "GPU:0/"}) {
    CHECK_THROWS_AS(DeviceScope(name), tl::ValueError);
    tl::config::set_soft_device_placement(true);
    CHECK_THROWS_AS(DeviceScope(name), tl::ValueError);  // malformed names always
    tl::config::set_soft_device_placement(false);
  }
  CHECK(small().device() == tl::gpu_device(0));
}

TEST_CASE("an exception restores the outer scope") {
  if (own_process(simulated("2x256"))) return;
  DeviceScope outer("GPU:1");
  try {
    DeviceScope inner("CPU:0");
    CHECK(small().device() == tl::cpu_device());
    tl::matmul(tl::ones({2, 3}), tl::ones({2, 3}));
    FAIL("a matmul of 2x3 and 2x3 must throw");
  } catch (const tl::ShapeError&) {}
  CHECK(small().device() == tl::gpu_device(1));
  CHECK_THROWS_AS(DeviceScope("GPU:9"), tl::DeviceUnavailableError);  // whose constructor throws changes nothing
  CHECK(small().device() == tl::gpu_device(1));
}

TEST_CASE("soft placement takes the same type first and then the CPU") {
  if (auto child = own_process(simulated("1x256"))) {
    const std::string warning = "tensorlite: warning: AddV2 runs on GPU:0: GPU:2 is not present and soft placement is on\n";
    CHECK(contains(child->output, warning));
    CHECK(child->output.find(warning) == child->output.rfind(warning));  // once per op and device
    CHECK(contains(
        child->output,
        "Executing op AddV2 in device /job:localhost/replica:0/task:0/device:GPU:0 (requested GPU:2, soft placement: not present)\n"));
    return;
  }
  tl::config::set_soft_device_placement(true);
  {
    DeviceScope absent("GPU:2");
    const tl::Tensor a = small();
    tl::debugging::set_log_device_placement(true);
    Events events;
    for (int i = 0; i < 3; ++i) CHECK((a + a).device() == tl::gpu_device(0));
    REQUIRE(events.all.size() == 3);
    CHECK(events.all[0].requested == tl::gpu_device(2));
    CHECK(events.all[0].reason == "soft placement: not present");
  }
  DeviceScope absent("CPU:5");
  CHECK(small().device() == tl::cpu_device(0));
}

TEST_CASE("soft placement without a GPU runs on the CPU and says so") {
  if (auto child = own_process(without_gpu())) {
    CHECK(contains(
        child->output,
        "Executing op Ones in device /job:localhost/replica:0/task:0/device:CPU:0 (requested GPU:0, soft placement: not present)\n"));
    return;
  }
  CHECK_THROWS_AS(DeviceScope("GPU:0"), tl::DeviceUnavailableError);
  tl::config::set_soft_device_placement(true);
  tl::debugging::set_log_device_placement(true);
  DeviceScope absent("GPU:0");
  CHECK(small().device() == tl::cpu_device());
}

TEST_CASE("the tutorial's matmul without a GPU") {
  if (auto child = own_process(without_gpu())) {
    CHECK(contains(child->output, "Executing op MatMul in device /job:localhost/replica:0/task:0/device:CPU:0\n"));
    return;
  }
  tl::debugging::set_log_device_placement(true);
  const tl::Tensor a{{1.f, 2.f, 3.f}, {4.f, 5.f, 6.f}}, b{{1.f, 2.f}, {3.f, 4.f}, {5.f, 6.f}};
  CHECK(tl::matmul(a, b).to_vector<float>() == std::vector<float>{22, 28, 49, 64});
}

TEST_CASE("the tutorial's matmul with a GPU") {
  if (auto child = own_process(simulated("1x256"))) {
    CHECK(contains(child->output, "Executing op MatMul in device /job:localhost/replica:0/task:0/device:GPU:0\n"));
    CHECK(contains(child->output,
                   "Executing op MatMul in device /job:localhost/replica:0/task:0/device:GPU:0 [copied input 0 from CPU:0, 24 B, "
                   "copied input 1 from CPU:0, 24 B]\n"));
    return;
  }
  tl::debugging::set_log_device_placement(true);
  const tl::Tensor a{{1.f, 2.f, 3.f}, {4.f, 5.f, 6.f}}, b{{1.f, 2.f}, {3.f, 4.f}, {5.f, 6.f}};
  CHECK(tl::matmul(a, b).to_vector<float>() == std::vector<float>{22, 28, 49, 64});
  tl::Tensor c, d;
  {
    DeviceScope cpu("/CPU:0");
    c = tl::Tensor{{1.f, 2.f, 3.f}, {4.f, 5.f, 6.f}};
    d = tl::Tensor{{1.f, 2.f}, {3.f, 4.f}, {5.f, 6.f}};
  }
  CHECK(c.device() == tl::cpu_device());
  const tl::Tensor product = tl::matmul(c, d);
  CHECK(product.device() == tl::gpu_device());
  CHECK(product.to_vector<float>() == std::vector<float>{22, 28, 49, 64});
}

TEST_CASE("the placement log can be switched on by the environment") {
  if (auto child = own_process(without_gpu({{"TENSORLITE_LOG_PLACEMENT", "1"}, {"TENSORLITE_LOG", "error"}}))) {
    CHECK(contains(child->output, "Executing op Ones in device"));
    CHECK(!contains(child->output, "Executing op AddV2"));
    return;
  }
  const tl::Tensor a = small();
  CHECK(tl::debugging::get_log_device_placement());
  tl::debugging::set_log_device_placement(false);
  CHECK(!tl::debugging::get_log_device_placement());
  a + a;
}

TEST_CASE("placement policies") {
  if (own_process(simulated("2x256"))) return;
  const tl::Tensor on_cpu = tl::ones({2}, {.device = tl::cpu_device()}), on_0 = tl::ones({2}, {.device = tl::gpu_device(0)}),
                   on_1 = tl::ones({2}, {.device = tl::gpu_device(1)});
  using tl::config::set_placement_policy;
  SECTION("automatic: where an accelerator input is, else GPU:0") {
    CHECK((on_cpu + on_1).device() == tl::gpu_device(1));
    CHECK((on_0 + on_1).device() == tl::gpu_device(0));
    CHECK((on_1 + on_0).device() == tl::gpu_device(1));
    CHECK((on_cpu + on_cpu).device() == tl::gpu_device(0));
    DeviceScope scope("CPU:0");
    CHECK((on_0 + on_1).device() == tl::cpu_device());
  }
  SECTION("follow_inputs: CPU inputs stay on the CPU") {
    set_placement_policy(tl::PlacementPolicy::follow_inputs);
    CHECK(tl::config::get_placement_policy() == tl::PlacementPolicy::follow_inputs);
    CHECK((on_cpu + on_cpu).device() == tl::cpu_device());
    CHECK((on_cpu + on_1).device() == tl::gpu_device(1));
    CHECK(small().device() == tl::gpu_device(0));
    DeviceScope scope("GPU:1");
    CHECK((on_cpu + on_cpu).device() == tl::gpu_device(1));
  }
  SECTION("explicit_only: a mixed op throws and names both devices") {
    set_placement_policy(tl::PlacementPolicy::explicit_only);
    CHECK((on_1 + on_1).device() == tl::gpu_device(1));
    CHECK((on_cpu + on_cpu).device() == tl::cpu_device());
    const std::string text = error_text<tl::DeviceMismatchError>([&] { on_cpu + on_1; });
    INFO(text);
    CHECK(contains(text, "AddV2: "));
    CHECK(contains(text, "CPU:0"));
    CHECK(contains(text, "GPU:1"));
    CHECK(contains(text, "to(\""));
    DeviceScope scope("GPU:1");
    CHECK((on_1 + on_1).device() == tl::gpu_device(1));
    CHECK(contains(error_text<tl::DeviceMismatchError>([&] { on_cpu + on_cpu; }), "input 0 is on CPU:0 but the scope is GPU:1"));
  }
  set_placement_policy(tl::PlacementPolicy::automatic);
}

TEST_CASE("implicit copies are counted and refused or warned of by policy") {
  if (auto child = own_process(simulated("1x256"))) {
    CHECK(contains(child->output, "tensorlite: warning: AddV2: input 1 is copied from CPU:0 to GPU:0, 8 B\n"));
    return;
  }
  const tl::Tensor on_cpu = tl::ones({2}, {.device = tl::cpu_device()}), on_gpu = tl::ones({2});
  tl::debugging::reset_placement_stats();
  on_gpu + on_cpu;
  on_cpu + on_cpu;
  on_gpu + on_gpu;
  auto stats = tl::debugging::placement_stats();
  CHECK(stats.implicit_copies == 3);
  CHECK(stats.implicit_copy_bytes == 24);
  REQUIRE(stats.ops_per_device.size() == 2);
  CHECK(stats.ops_per_device[0] == std::pair<tl::Device, std::int64_t>{tl::cpu_device(), 0});
  CHECK(stats.ops_per_device[1] == std::pair<tl::Device, std::int64_t>{tl::gpu_device(), 3});

  tl::config::set_device_policy(tl::DevicePolicy::warn);
  CHECK(tl::config::get_device_policy() == tl::DevicePolicy::warn);
  CHECK((on_gpu + on_cpu).to_vector<float>() == std::vector<float>{2, 2});
  tl::config::set_device_policy(tl::DevicePolicy::error);
  const std::string text = error_text<tl::DeviceMismatchError>([&] { on_gpu + on_cpu; });
  CHECK(contains(text, "AddV2: input 1 is on CPU:0 but the op runs on GPU:0; copy it with to(\"GPU:0\")"));
  CHECK((on_gpu + on_gpu).device() == tl::gpu_device());
  std::thread([&] {
    CHECK(tl::config::get_device_policy() == tl::DevicePolicy::silent);  // of the thread
    on_gpu + on_cpu;
  }).join();
  CHECK(tl::debugging::placement_stats().implicit_copies == 5);
  tl::debugging::reset_placement_stats();
  CHECK(tl::debugging::placement_stats().implicit_copies == 0);
  CHECK(tl::debugging::placement_stats().ops_per_device[1].second == 0);
}

TEST_CASE("events name op, device, reason, copies, dtypes and shapes") {
  if (own_process(simulated("1x256"))) return;
  const tl::Tensor on_cpu = tl::ones({2, 3}, {.device = tl::cpu_device()}), on_gpu = tl::ones({2, 3});
  Events events;
  on_gpu + on_cpu;
  on_cpu + on_cpu;
  {
    DeviceScope scope("CPU:0");
    on_cpu + on_cpu;
  }
  tl::ones({2}, {.device = tl::cpu_device()});
  REQUIRE(events.all.size() == 4);
  const tl::PlacementEvent& first = events.all[0];
  CHECK(first.op == "AddV2");
  CHECK(first.device == tl::gpu_device());
  CHECK(!first.requested);
  CHECK(first.reason == "inputs");
  REQUIRE(first.copies.size() == 1);
  CHECK(first.copies[0].input == 1);
  CHECK(first.copies[0].from == tl::cpu_device());
  CHECK(first.copies[0].bytes == 24);
  CHECK(first.dtypes == std::vector<tl::DType>{tl::kFloat32, tl::kFloat32, tl::kFloat32});
  CHECK(first.shapes == std::vector<tl::Dims>{{2, 3}, {2, 3}, {2, 3}});
  CHECK(events.all[1].reason == "automatic");
  CHECK(events.all[1].copies.size() == 2);
  CHECK(events.all[2].reason == "scope");
  CHECK(events.all[2].copies.empty());
  CHECK(events.all[3].reason == "given");
  CHECK(events.all[3].op == "Ones");
}

TEST_CASE("the sink is apart from the log") {
  if (auto child = own_process(without_gpu())) {
    CHECK(!contains(child->output, "Executing op"));
    return;
  }
  {
    Events events;
    small();
    CHECK(events.all.size() == 1);
  }
  small();  // after the sink has gone
}

TEST_CASE("a failed op leaves no copies to the next one's line") {
  if (own_process(simulated("1x256"))) return;
  const tl::Tensor on_cpu = tl::ones({2, 3}, {.device = tl::cpu_device()}), on_gpu = tl::ones({2, 3});
  Events events;
  CHECK_THROWS_AS(tl::matmul(on_gpu, on_cpu), tl::ShapeError);
  events.all.clear();
  on_gpu + on_gpu;
  REQUIRE(events.all.size() == 1);
  CHECK(events.all[0].copies.empty());
}

TEST_CASE("a new thread starts without a scope and a snapshot carries one over") {
  if (own_process(simulated("2x256"))) return;
  DeviceScope scope("GPU:1");
  const tl::ScopeSnapshot snapshot;
  std::thread([&] {
    CHECK(small().device() == tl::gpu_device(0));
    {
      const auto guard = snapshot.enter();
      CHECK(small().device() == tl::gpu_device(1));
      DeviceScope inner("CPU:0");
      CHECK(small().device() == tl::cpu_device());
    }
    CHECK(small().device() == tl::gpu_device(0));
  }).join();
}

TEST_CASE("eight threads with nested scopes and exceptions each see their own device") {
  if (own_process(simulated("2x256"))) return;
  tl::config::list_logical_devices();
  tl::debugging::reset_placement_stats();
  std::atomic<int> wrong{0};
  const auto device_of = [](int i) { return i % 3 == 2 ? tl::cpu_device() : tl::gpu_device(i % 3); };
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 3334; ++i) {
        const tl::Device outer = device_of(t), inner = device_of(t + i);
        DeviceScope scope(outer);
        const tl::Tensor x = tl::ones({4});
        try {
          DeviceScope nested(tl::short_name(inner));
          const tl::Tensor y = x + x;
          wrong += y.device() != inner;
          wrong += y.to_vector<float>() != std::vector<float>{2, 2, 2, 2};
          if (i % 2) throw std::runtime_error("out of the scope");
        } catch (const std::runtime_error&) {}
        wrong += x.device() != outer;
        wrong += (x + x).device() != outer;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  std::int64_t counted = 0;
  for (const auto& [device, count] : tl::debugging::placement_stats().ops_per_device) counted += count;
  CHECK(counted == 8 * 3334 * 3);
}
