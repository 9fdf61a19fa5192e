// Checkpoints of networks and optimizers, and files that stay as they were when writing fails.
#include <tensorlite/io.hpp>
#include <tensorlite/tensorlite.hpp>
#include <tensorlite/nn.hpp>
#include <tensorlite/optim.hpp>

#include "catch.hpp"
#include "temp_folder.hpp"

#if defined(__linux__)
#include <sys/resource.h>

#include <csignal>
#endif

namespace tl = tensorlite;
namespace nn = tensorlite::nn;
using Catch::Matchers::ContainsSubstring;

namespace {

const tl::TensorOptions kCpu{.device = tl::cpu_device()};

struct Net : nn::Module {
  nn::Linear fc1{3, 8, {.activation = tl::Activation::relu}};
  nn::BatchNorm1d norm{8};
  nn::Dropout dropout{0.5};
  nn::Linear fc2{8, 2};
  Net() : Module("Net") {
    register_module("fc1", fc1);
    register_module("norm", norm);
    register_module("dropout", dropout);
    register_module("fc2", fc2);
  }
  tl::Tensor forward(const tl::Tensor& x) override { return fc2(dropout(norm(fc1(x)))); }
};

std::vector<float> train(Net& net, tl::optim::Optimizer& optimizer, int steps) {
  std::vector<float> losses;
  for (int i = 0; i < steps; ++i) {
    const auto x = tl::randn({16, 3}, kCpu);
    optimizer.zero_grad();
    const auto loss = tl::mse_loss(net(x), x.slice(1, 0, 2));
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<float>());
  }
  return losses;
}

}  // namespace

TEST_CASE("training goes on bit for bit from a checkpoint: parameters, buffers, optimizer, random numbers") {
  const tl::DeviceScope cpu("/CPU:0");
  const TempFolder folder;
  const std::string path = folder / "run.safetensors";
  tl::manual_seed(3);
  Net net;
  tl::optim::Adam optimizer(net.named_parameters(), {.lr = 0.01});
  train(net, optimizer, 5);
  tl::io::save_checkpoint(path, {{{"model", net.state_dict()}, {"optimizer", optimizer.state_dict()}}, {{"epoch", "5"}}});
  const auto expected = train(net, optimizer, 5);

  tl::manual_seed(99);
  Net fresh;
  tl::optim::Adam fresh_optimizer(fresh.named_parameters(), {.lr = 0.5});
  const auto checkpoint = tl::io::load_checkpoint(path);
  CHECK(checkpoint.metadata.at("epoch") == "5");
  CHECK(checkpoint.parts.at("model").count("norm.running_mean") == 1);
  fresh.load_state_dict(checkpoint.parts.at("model"));
  fresh_optimizer.load_state_dict(checkpoint.parts.at("optimizer"));
  tl::io::restore_random_state(checkpoint);
  CHECK(train(fresh, fresh_optimizer, 5) == expected);
}

TEST_CASE("a checkpoint's parts and random state are checked") {
  const TempFolder folder;
  const auto zeros = tl::zeros({1}, kCpu);
  CHECK_THROWS_AS(tl::io::save_checkpoint(folder / "a", {{{"a.b", {{"x", zeros}}}}, {}}), tl::ValueError);
  CHECK_THROWS_AS(tl::io::save_checkpoint(folder / "a", {{{"", {{"x", zeros}}}}, {}}), tl::ValueError);
  tl::io::save_safetensors(folder / "plain", {{{"x", zeros}}, {}});
  CHECK_THAT(error_text<tl::IoError>([&] { tl::io::load_checkpoint(folder / "plain"); }), ContainsSubstring("'x' belongs to no part"));
  CHECK_THAT(error_text<tl::ValueError>([] { tl::io::restore_random_state({}); }), ContainsSubstring("random.seed"));
  CHECK_THROWS_AS(tl::io::restore_random_state({{}, {{"random.seed", "1x"}, {"random.offset", "0"}}}), tl::ValueError);
}

TEST_CASE("writing into a folder that is not there is an error that names the file") {
  const TempFolder folder;
  const std::string path = folder / "none/a.npy";
  CHECK_THAT(error_text<tl::IoError>([&] { tl::io::save_npy(path, tl::zeros({1}, kCpu)); }),
             ContainsSubstring(path) && ContainsSubstring("No such file"));
  CHECK_THROWS_AS(tl::io::write_text(folder.path(), "text"), tl::IoError);
  CHECK(folder.file_count() == 0);
}

#if defined(__linux__)
namespace {
/// Lets files grow to `bytes` only, as a full disk would, while it lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : old_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{bytes, old_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, old_handler_);
  }

 private:
  void (*old_handler_)(int);
  rlimit old_{};
};
}  // namespace

TEST_CASE("a full disk loses nothing that existed and leaves nothing behind") {
  const TempFolder folder;
  const auto small = tl::zeros({10}, kCpu), large = tl::ones({100000}, kCpu);
  const std::string path = folder / "file";
  const auto writers = {
      +[](const std::string& p, const tl::Tensor& t) { tl::io::save_npy(p, t); },
      +[](const std::string& p, const tl::Tensor& t) {
        tl::io::save_npz(p, {{"x", t}});
      },
      +[](const std::string& p, const tl::Tensor& t) {
        tl::io::save_safetensors(p, {{{"x", t}}, {}});
      },
      +[](const std::string& p, const tl::Tensor& t) {
        tl::io::save_checkpoint(p, {{{"x", {{"x", t}}}}, {}});
      },
      +[](const std::string& p, const tl::Tensor& t) { tl::io::write_text(p, std::string(static_cast<std::size_t>(t.nbytes()), 'x')); }};
  for (const auto& write : writers) {
    write(path, small);
    const std::string before = file_bytes(path);
    std::string error;
    {
      const FileSizeLimit limit(64 * 1024);
      error = error_text<tl::IoError>([&] { write(path, large); });
    }
    CHECK_THAT(error, ContainsSubstring(path) && ContainsSubstring("cannot write") && ContainsSubstring("as it was before"));
    CHECK(file_bytes(path) == before);
    CHECK(folder.file_count() == 1);
    write(path, large);
    CHECK(file_bytes(path).size() > before.size());
  }
}
#endif
