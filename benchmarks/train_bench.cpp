// A training step of mnist_cnn's two networks, op by op and as a captured step: time per step and images per second, by Google Benchmark
// (--benchmark_out=FILE --benchmark_out_format=json). Row names are "model/batch/precision/device", with "/graph" for captured steps.
// On a GPU a row is timed over a batch of steps between two waits for the device, as in an epoch.
#include "../examples/mnist_cnn/recipe.hpp"

#include <tensorlite/tensorlite.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>

namespace {

using namespace tensorlite;

struct Row {
  std::string model;
  std::int64_t batch;
  Float32Precision precision;
  Device device;
  bool graph;
  std::string name() const {
    return detail::concat(model, "/", batch, precision == Float32Precision::tf32 ? "/tf32/" : "/float32/", short_name(device),
                          graph ? "/graph" : "");
  }
};

mnist_cnn::Recipe recipe_of(const std::string& model) {
  mnist_cnn::Settings settings;
  settings.model = model;
  return mnist_cnn::make_recipe(settings);
}

/// A network with its optimizer and one batch of noise.
class Training {
 public:
  explicit Training(const Row& row)
      : recipe_(recipe_of(row.model)),
        model_(mnist_cnn::make_model(recipe_)),
        optimizer_(mnist_cnn::make_optimizer(recipe_, *model_)),
        inputs_{randn({row.batch, 28, 28, 1}), randint(0, 10, {row.batch})},
        captured_(capture([this](const std::vector<Tensor>& in) { return step(in); })),
        graph_(row.graph) {}
  void step() {
    if (graph_) captured_(inputs_);
    else step(inputs_);
  }

 private:
  Tensor step(const std::vector<Tensor>& in) {
    optimizer_->zero_grad();
    const Tensor loss = cross_entropy((*model_)(in[0]), in[1]);
    loss.backward();
    optimizer_->step();
    return loss.detach();
  }

  mnist_cnn::Recipe recipe_;
  std::unique_ptr<nn::Module> model_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::vector<Tensor> inputs_;
  CapturedStep captured_;
  bool graph_;
};

double seconds(Training& training, Device device, int steps) {
  synchronize(device);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < steps; ++i) training.step();
  synchronize(device);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void run(benchmark::State& state, const Row& row) {
  const DeviceScope scope(row.device);
  config::set_float32_precision(row.precision);
  manual_seed(1);
  Training training(row);
  for (int i = 0; i < (row.device.is_gpu() ? 20 : 3); ++i) training.step();
  const int steps = row.device.is_gpu() ? std::clamp(static_cast<int>(0.02 / (seconds(training, row.device, 5) / 5)), 1, 200) : 1;
  for (auto _ : state) state.SetIterationTime(seconds(training, row.device, steps) / steps);
  state.counters["images/s"] = benchmark::Counter(static_cast<double>(row.batch), benchmark::Counter::kIsIterationInvariantRate);
}

void add(const Row& row) {
  benchmark::RegisterBenchmark(row.name().c_str(), [row](benchmark::State& state) { run(state, row); })
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace

int main(int argc, char** argv) {
  for (const PhysicalDevice& gpu : config::list_physical_devices("GPU")) config::set_memory_growth(gpu, true);
  for (const char* model : {"pytorch", "ghouzam"}) {
    for (const std::int64_t batch : {64, 512}) {
      add({model, batch, Float32Precision::highest, cpu_device(), false});
      if (config::list_logical_devices("GPU").empty()) continue;
      for (const Float32Precision precision : {Float32Precision::highest, Float32Precision::tf32})
        for (const bool graph : {false, true}) add({model, batch, precision, gpu_device(), graph});
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
