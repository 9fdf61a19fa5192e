// What can go wrong on a machine with a GPU, and what must not: the GPU cases of the known failures that need the real driver and the
// real libraries. Without a GPU each test says that it was skipped; under TENSORLITE_REQUIRE_DEVICE it fails.
#include "own_process.hpp"
#include "temp_folder.hpp"

#include <tensorlite/tensorlite.hpp>

#include <sstream>

namespace tl = tensorlite;
using namespace tl::config;

namespace {

/// Listing creates no context, so a child process can still choose its settings.
bool gpu_there() {
  if (!list_physical_devices("GPU").empty()) return true;
  if (std::getenv("TENSORLITE_REQUIRE_DEVICE")) FAIL("a GPU is required and there is none that can be used");
  std::fprintf(stderr, "skipped: no usable GPU\n");
  return false;
}

/// A small part of the card, so that tests run beside other programs.
Environment growing(Environment more = {}) {
  more["TENSORLITE_FORCE_GPU_ALLOW_GROWTH"] = "true";
  return more;
}

/// `folder` in front of the places where libraries are looked for, less those that hold a cuDNN.
Environment library_path(const std::string& folder) {
  const char* others = std::getenv("LD_LIBRARY_PATH");
  std::istringstream rest(others ? others : "");
  std::string paths = folder;
  for (std::string entry; std::getline(rest, entry, ':');)
    if (!entry.empty() && !std::filesystem::exists(entry + "/libcudnn.so.9")) paths += ":" + entry;
  return growing({{"LD_LIBRARY_PATH", paths}});
}

bool is_loaded(const std::string& library) { return contains(file_bytes("/proc/self/maps"), library); }

/// A convolution on the GPU agrees with the CPU's.
void check_convolution() {
  const tl::DeviceScope gpu("GPU:0");
  const tl::Tensor x = tl::randn({2, 9, 9, 4}), w = tl::randn({8, 3, 3, 4}), b = tl::randn({8});
  const tl::Tensor found = tl::conv2d(x, w, b).to("CPU:0");
  const tl::DeviceScope cpu("CPU:0");
  const tl::Tensor wanted = tl::conv2d(x.to("CPU:0"), w.to("CPU:0"), b.to("CPU:0"));
  CHECK(tl::max(tl::abs(found - wanted)).item<float>() < 1e-4f);
}

// A50: filled in a process of its own, destroyed after main.
tl::Tensor g_tensor;
thread_local tl::Tensor t_tensor;

}  // namespace

TEST_CASE("gpu: A46 the GPU in a forked child") {
  if (!gpu_there() || own_process(growing())) return;
  SECTION("listed only: CUDA's driver does not survive a fork either, and the error says so") {
    CHECK(in_fork([] {
            const std::string text = error_text<tl::DeviceError>([] { tl::ones({4}); });
            if (!contains(text, "after fork()") || !contains(text, "Start the child with exec")) return 1;
            const tl::DeviceScope cpu("CPU:0");
            return (tl::ones({4}) + 1).to_vector<float>() == std::vector<float>{2, 2, 2, 2} ? 0 : 2;
          }) == 0);
  }
  SECTION("used before: it throws, the CPU works") {
    const tl::Tensor kept = tl::ones({4});
    REQUIRE(kept.device() == tl::gpu_device());
    CHECK(in_fork([&] {
            const std::string text = error_text<tl::DeviceUnavailableError>([] { tl::ones({4}); });
            if (!contains(text, "the parent used it before fork()")) return 1;
            const tl::DeviceScope cpu("CPU:0");
            return (tl::ones({4}) + 1).to_vector<float>() == std::vector<float>{2, 2, 2, 2} ? 0 : 2;
          }) == 0);
    CHECK((kept + kept).to_vector<float>() == std::vector<float>{2, 2, 2, 2});
  }
}

TEST_CASE("gpu: A48 out of memory names every figure, and the next op works") {
  if (!gpu_there() || own_process()) return;
  set_logical_device_configuration(list_physical_devices("GPU")[0], {{.memory_limit = 256}});
  const tl::DeviceScope gpu("GPU:0");
  const std::string text = error_text<tl::OutOfMemoryError>([] { tl::empty({250, 1000, 1000, 1000}); });
  INFO(text);
  for (const char* figure : {"out of memory on GPU:0: requested 931.3 GiB", "in use ", "reserved ", "limit 256.0 MiB", "driver-free "})
    CHECK(contains(text, figure));
  CHECK((tl::ones({4}) + tl::ones({4})).to_vector<float>() == std::vector<float>{2, 2, 2, 2});
}

TEST_CASE("gpu: A49 freed pieces serve a request larger than each") {
  if (!gpu_there() || own_process()) return;
  const auto card = list_physical_devices("GPU")[0];
  set_memory_growth(card, true);
  set_logical_device_configuration(card, {{.memory_limit = 256}});
  const tl::DeviceScope gpu("GPU:0");
  std::vector<tl::Tensor> pieces;
  for (int i = 0; i < 16; ++i) pieces.push_back(tl::ones({4 << 20}));
  for (std::size_t i = 0; i < 16; i += 2) pieces[i] = {};
  const std::string text = error_text<tl::OutOfMemoryError>([] { tl::empty({8 << 20}); });
  CHECK(contains(text, "largest free block 16.0 MiB"));
  pieces.clear();
  CHECK(tl::ones({63 << 20})[-1].item<float>() == 1);
}

TEST_CASE("gpu: without growth the limit is taken at first use, with growth what is needed") {
  if (!gpu_there()) return;
  const bool growth = GENERATE(false, true);
  if (own_process({{"TENSORLITE_FORCE_GPU_ALLOW_GROWTH", growth ? "true" : "false"}})) return;
  const bool grows = std::getenv("TENSORLITE_FORCE_GPU_ALLOW_GROWTH") == std::string("true");
  set_logical_device_configuration(list_physical_devices("GPU")[0], {{.memory_limit = 1024}});
  const tl::Tensor x = tl::ones({100});
  const auto info = get_memory_info("GPU:0");
  CHECK(info.limit == std::int64_t{1024} << 20);
  CHECK(info.reserved == (grows ? std::int64_t{2} << 20 : info.limit));
  CHECK(tl::sum(x).item<float>() == 100);
}

TEST_CASE("gpu: two logical devices share one card") {
  if (!gpu_there() || own_process()) return;
  set_logical_device_configuration(list_physical_devices("GPU")[0], {{.memory_limit = 128}, {.memory_limit = 128}});
  const tl::Tensor first = tl::full({1000}, 2.f, {.device = tl::gpu_device(0)}),
                   second = tl::full({1000}, 3.f, {.device = tl::gpu_device(1)});
  CHECK(second.device() == tl::gpu_device(1));
  CHECK(tl::sum(first.to("GPU:1") * second).item<float>() == 6000);
  CHECK(get_memory_info("GPU:1").limit == std::int64_t{128} << 20);
}

TEST_CASE("gpu: A50 tensors of static lifetime die quietly") {
  if (!gpu_there()) return;
  if (auto child = own_process(growing())) {
    CHECK(!contains(child->output, "tensorlite:"));
    CHECK(!contains(child->output, "terminate"));
    return;
  }
  static tl::Tensor function_static;
  for (tl::Tensor* tensor : {&g_tensor, &t_tensor, &function_static}) *tensor = tl::ones({100}) + tl::ones({100});
  CHECK(g_tensor.device() == tl::gpu_device());
}

TEST_CASE("gpu: a program that only multiplies never loads cuDNN") {
  if (!gpu_there() || own_process(growing())) return;
  const tl::DeviceScope gpu("GPU:0");
  const tl::Tensor a = tl::ones({64, 64});
  CHECK(tl::sum(tl::matmul(a, a)).item<float>() == 64 * 64 * 64);
  CHECK(!is_loaded("libcudnn"));
  check_convolution();
}

TEST_CASE("gpu: A52 a part of cuDNN that cannot be loaded") {
  if (!gpu_there()) return;
  // cuDNN looks for its parts beside itself first: a folder with a copy of it and with links to the parts, one of which is an empty file.
  const TempFolder folder;
  const std::string broken =
      GENERATE("libcudnn.so.9", "libcudnn_graph.so.9", "libcudnn_engines_precompiled.so.9", "libcudnn_heuristic.so.9");
  if (!std::getenv("TENSORLITE_TEST_CHILD")) {
    int parts = 0;
    for (const tl::Finding& finding : diagnose_gpus()) {
      if (!finding.layer.starts_with("cuDNN") || finding.path.empty()) continue;
      const std::filesystem::path path = finding.path;
      const std::string name = path.filename().string().substr(0, path.filename().string().find(".so.")) + ".so.9";
      ++parts;
      if (name == broken) continue;
      if (finding.layer == "cuDNN") std::filesystem::copy_file(path, folder / name);
      else std::filesystem::create_symlink(path, folder / name);
    }
    REQUIRE(parts > 3);
    folder.write(broken, "");
  }
  if (auto child = own_process(library_path(folder.path()))) {
    INFO(broken << ": " << child->output);
    // cuDNN itself goes on to look for a part elsewhere, so it may work after all; the right numbers are asked for below.
    const bool warned = contains(child->output, "convolutions do without cuDNN");
    CHECK((warned || broken != "libcudnn.so.9"));
    CHECK(warned == contains(child->output, "built for cuDNN"));
    return;
  }
  check_convolution();
  const tl::DeviceScope gpu("GPU:0");
  CHECK(tl::sum(tl::matmul(tl::ones({8, 8}), tl::ones({8, 8}))).item<float>() == 512);
}

TEST_CASE("gpu: A53 a plug-in that was not compiled for this GPU") {
  const char* foreign = std::getenv("TENSORLITE_TEST_FOREIGN_PLUGIN");
  if (!foreign) {
    std::fprintf(stderr, "skipped: TENSORLITE_TEST_FOREIGN_PLUGIN names no plug-in of another compute capability\n");
    return;
  }
  if (own_process(growing({{"TENSORLITE_CUDA_PLUGIN", foreign}}))) return;
  const std::string text = error_text<tl::DeviceUnavailableError>([] {
    const tl::DeviceScope gpu("GPU:0");
    tl::ones({4});
  });
  INFO(text);
  CHECK(contains(text, "compute capability"));
  CHECK(contains(text, "compiled for"));
  const tl::DeviceScope cpu("CPU:0");
  CHECK((tl::ones({4}) + 1).to_vector<float>() == std::vector<float>{2, 2, 2, 2});
}
