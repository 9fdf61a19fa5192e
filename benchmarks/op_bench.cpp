// Operations on every device: GFLOP/s or GB/s per row, by Google Benchmark (--benchmark_out=FILE --benchmark_out_format=json).
// Row names are "row/dtype/device"; benchmarks/compare_ops.py runs the same rows with PyTorch and prints the ratios.
// On a GPU a row is timed over a batch of calls between two waits for the device, so that host work overlaps as it does in a program.
#include <tensorlite/tensorlite.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <string>

namespace {

using namespace tensorlite;
using Body = std::function<void()>;

struct Row {
  std::string name;
  double flops = 0, bytes = 0;         ///< of one call
  std::function<Body(DType)> prepare;  ///< makes the inputs on the scope's device
};

double seconds(const Body& body, Device device, int calls) {
  synchronize(device);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) body();
  synchronize(device);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void run(benchmark::State& state, const Row& row, DType dtype, Device device) {
  const DeviceScope scope(device);
  const Body body = row.prepare(dtype);
  for (int i = 0; i < 3; ++i) body();
  const double once = seconds(body, device, 3) / 3;
  const int calls = device.is_cpu() ? 1 : std::clamp(static_cast<int>(0.01 / once), 1, 200);
  for (auto _ : state) state.SetIterationTime(seconds(body, device, calls) / calls);
  if (row.flops > 0) state.counters["GFLOP/s"] = benchmark::Counter(row.flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
  if (row.bytes > 0) state.counters["GB/s"] = benchmark::Counter(row.bytes * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

Row gemm(std::int64_t m, std::int64_t n, std::int64_t k) {
  return {detail::concat("gemm_", m, "x", n, "x", k), 2.0 * static_cast<double>(m * n * k), 0, [=](DType dtype) -> Body {
            const Tensor a = rand({m, k}).to(dtype), b = rand({k, n}).to(dtype);
            return [=] { matmul(a, b); };
          }};
}

/// n, c, size, o, kernel, stride, padding.
Row conv(std::array<std::int64_t, 7> s, bool backward) {
  const auto [n, c, size, o, k, stride, pad] = s;
  const std::int64_t out = (size + 2 * pad - k) / stride + 1;
  const double flops = 2.0 * static_cast<double>(n * out * out * o * c * k * k) * (backward ? 3 : 1);
  std::string name = backward ? "conv_train" : "conv";
  for (std::int64_t v : s) name += "_" + std::to_string(v);
  return {
      name, flops, 0, [=](DType dtype) -> Body {
        const Tensor x = rand({n, size, size, c}).to(dtype).requires_grad_(backward && c > 3);
        const Tensor w = (rand({o, k, k, c}) - 0.5).to(dtype).requires_grad_(backward), b = rand({o}).to(dtype).requires_grad_(backward);
        const Conv2dOptions options{.stride = stride, .padding = pad};
        if (!backward) return [=] { conv2d(x, w, b, options); };
        const Tensor g = rand({n, out, out, o}).to(dtype);
        return [=] {
          for (const Tensor& t : {x, w, b}) t.set_grad({});
          conv2d(x, w, b, options).backward(g);
        };
      }};
}

/// An op on `count` elements that moves `passes` times their bytes.
Row elementwise(const std::string& name, std::int64_t count, double passes, Tensor (*op)(const Tensor&)) {
  return {name, 0, passes * 4 * static_cast<double>(count), [=](DType dtype) -> Body {
            const Tensor x = rand({count / 1024, 1024}).to(dtype);
            return [=] { op(x); };
          }};
}

std::vector<Row> rows(std::int64_t elements, bool large) {
  std::vector<Row> all;
  for (std::int64_t n : {256, 512, 1024, 2048, 4096}) all.push_back(gemm(n, n, n));
  if (large) all.push_back(gemm(8192, 8192, 8192));
  all.push_back(gemm(64, 10, 1024));
  all.push_back(gemm(128, 256, 3136));
  all.push_back(gemm(64, 4096, 4096));
  all.push_back(gemm(36864, 64, 288));
  const std::array<std::int64_t, 7> shapes[] = {{64, 1, 28, 32, 3, 1, 0},     {64, 32, 26, 64, 3, 1, 0}, {86, 32, 28, 32, 5, 1, 2},
                                                {128, 128, 16, 128, 3, 1, 1}, {32, 64, 56, 64, 3, 1, 1}, {32, 256, 14, 256, 3, 1, 1},
                                                {32, 256, 56, 64, 1, 1, 0},   {32, 3, 224, 64, 7, 2, 3}};
  for (const auto& shape : shapes) {
    all.push_back(conv(shape, false));
    all.push_back(conv(shape, true));
  }
  all.push_back(elementwise("add", elements, 3, [](const Tensor& x) { return x + x; }));
  all.push_back(elementwise("relu", elements, 2, &relu));
  all.push_back(elementwise("exp", elements, 2, &exp));
  all.push_back(elementwise("gelu", elements, 2, &gelu));
  all.push_back(elementwise("copy", elements, 2, [](const Tensor& x) { return x.clone(); }));
  all.push_back(elementwise("sum", elements, 1, [](const Tensor& x) { return sum(x); }));
  all.push_back(elementwise("row_softmax", elements, 2, [](const Tensor& x) { return softmax(x, -1); }));
  all.push_back(elementwise("column_sum", elements, 1, [](const Tensor& x) { return sum(x, {0}); }));
  all.push_back(elementwise("transpose_copy", elements, 2, [](const Tensor& x) { return x.t().contiguous(); }));
  all.push_back(elementwise("broadcast_add", elements, 2, [](const Tensor& x) { return x + x[0]; }));
  return all;
}

void add_rows(Device device, DType dtype, bool tf32, std::int64_t elements) {
  for (const Row& row : rows(elements, device.is_gpu())) {
    if ((dtype != kFloat32 || tf32) && row.bytes > 0) continue;  // dtype and mode matter to products alone
    const std::string name = row.name + "/" + (tf32 ? "tf32" : name_of(dtype)) + "/" + short_name(device);
    benchmark::RegisterBenchmark(name.c_str(),
                                 [=](benchmark::State& state) {
                                   config::set_float32_precision(tf32 ? Float32Precision::tf32 : Float32Precision::highest);
                                   run(state, row, dtype, device);
                                 })
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  }
}

}  // namespace

int main(int argc, char** argv) {
  for (const PhysicalDevice& gpu : config::list_physical_devices("GPU")) config::set_memory_growth(gpu, true);
  add_rows(cpu_device(), kFloat32, false, std::int64_t{1} << 25);
  if (!config::list_logical_devices("GPU").empty()) {
    const std::int64_t elements = std::int64_t{1} << 28;
    add_rows(gpu_device(), kFloat32, false, elements);
    add_rows(gpu_device(), kFloat32, true, elements);
    add_rows(gpu_device(), kBFloat16, false, elements);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
