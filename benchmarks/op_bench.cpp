// Operations on every device: GFLOP/s or GB/s per row, by Google Benchmark (--benchmark_out=FILE --benchmark_out_format=json).
// Row names are "row/kind/device", a kind being a dtype or tf32. On a GPU a row is timed over a batch of calls between two waits for the
// device, so that host work overlaps as it does in a program.
//   op_bench --serve DEVICE       measures what standard input asks for; benchmarks/compare_ops.py alternates it with PyTorch
//   op_bench --first DEVICE       one small matrix product, for the time from program start to its result
#include <tensorlite/tensorlite.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <iostream>
#include <memory>
#include <sstream>
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

/// Calls in a batch that takes several milliseconds; on a CPU every call is timed.
int batch_size(const Body& body, Device device) {
  for (int i = 0; i < 2; ++i) body();
  const double once = seconds(body, device, 3) / 3;
  return device.is_cpu() ? 1 : std::clamp(static_cast<int>(0.006 / once), 1, 200);
}

void set_kind(const std::string& kind) {
  config::set_float32_precision(kind == "tf32" ? Float32Precision::tf32 : Float32Precision::highest);
}
DType dtype_of_kind(const std::string& kind) { return kind == "bfloat16" ? kBFloat16 : kFloat32; }

void run(benchmark::State& state, const Row& row, const std::string& kind, Device device) {
  set_kind(kind);
  const DeviceScope scope(device);
  const Body body = row.prepare(dtype_of_kind(kind));
  const int calls = batch_size(body, device);
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

enum class ConvRow { plain, biased, train };

/// n, c, size, o, kernel, stride, padding.
Row conv(std::array<std::int64_t, 7> s, ConvRow which) {
  const auto [n, c, size, o, k, stride, pad] = s;
  const bool backward = which == ConvRow::train;
  const std::int64_t out = (size + 2 * pad - k) / stride + 1;
  const double flops = 2.0 * static_cast<double>(n * out * out * o * c * k * k) * (backward ? 3 : 1);
  std::string name = backward ? "conv_train" : which == ConvRow::plain ? "conv_plain" : "conv";
  for (std::int64_t v : s) name += "_" + std::to_string(v);
  return {name, flops, 0, [=](DType dtype) -> Body {
            const Tensor x = rand({n, size, size, c}).to(dtype).requires_grad_(backward && c > 3);
            const Tensor w = (rand({o, k, k, c}) - 0.5).to(dtype).requires_grad_(backward),
                         b = which == ConvRow::plain ? Tensor() : rand({o}).to(dtype).requires_grad_(backward);
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
Row addition(std::int64_t count) {
  return {"add", 0, 3 * 4 * static_cast<double>(count), [=](DType dtype) -> Body {
            const Tensor x = rand({count / 1024, 1024}).to(dtype), y = rand({count / 1024, 1024}).to(dtype);
            return [=] { x + y; };
          }};
}

/// A bidirectional stack, forward and backward: steps, samples, inputs, units, layers.
template <class Layer> Row recurrent(const char* name, std::array<std::int64_t, 5> s) {
  std::string full = name;
  for (std::int64_t v : s) full += "_" + std::to_string(v);
  return {full, 0, 0, [=](DType) -> Body {
            const auto [steps, n, inputs, hidden, layers] = s;
            const auto layer = std::make_shared<Layer>(
                nn::RecurrentOptions{.input_size = inputs, .hidden_size = hidden, .num_layers = layers, .bidirectional = true});
            const Tensor x = rand({steps, n, inputs}).requires_grad_(), g = rand({steps, n, 2 * hidden});
            return [=] {
              layer->zero_grad();
              x.set_grad({});
              (*layer)(x).backward(g);
            };
          }};
}

/// CTC of logits, forward and backward: frames, samples, classes, labels.
Row ctc(std::array<std::int64_t, 4> s) {
  std::string name = "ctc_train";
  for (std::int64_t v : s) name += "_" + std::to_string(v);
  return {name, 0, 0, [=](DType) -> Body {
            const auto [frames, n, classes, labels] = s;
            const Tensor x = rand({frames, n, classes}).requires_grad_(), targets = randint(1, classes, {n, labels});
            return [=] {
              x.set_grad({});
              ctc_loss_with_logits(x, targets).backward();
            };
          }};
}

/// Calls so small that a GPU's time is that of the host: what they cost is measured without waiting for them.
std::vector<Row> small_rows() {
  std::vector<Row> all;
  const auto add = [&](const char* name, std::int64_t rows, std::int64_t columns, Tensor (*op)(const Tensor&)) {
    all.push_back({name, 0, 0, [=](DType) -> Body {
                     const Tensor x = rand({rows, columns});
                     return [=] { op(x); };
                   }});
  };
  add("host_add_8", 1, 8, [](const Tensor& x) { return x + x; });
  add("host_relu_8", 1, 8, &relu);
  // Parts of it: no kernel, only the result, only the kernel.
  add("host_relu_0", 0, 8, &relu);
  add("host_empty_8", 1, 8, [](const Tensor& x) { return empty(x.sizes()); });
  add("host_kernel_8", 1, 8, [](const Tensor& x) {
    TL_CALL((detail::OpPlace{"Relu", x.device()}), unary, UnaryOp::Relu, x.raw(), x.raw(), UnaryParams{});
    return Tensor();
  });
  add("host_sum_8", 1, 8, [](const Tensor& x) { return sum(x); });
  add("host_matmul_64", 64, 64, [](const Tensor& x) { return matmul(x, x); });
  Row small = conv({1, 8, 8, 8, 3, 1, 1}, ConvRow::biased);
  small.name = "host_conv_8";
  small.flops = 0;
  all.push_back(small);
  return all;
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
    for (const ConvRow which : {ConvRow::plain, ConvRow::biased, ConvRow::train}) all.push_back(conv(shape, which));
  }
  all.push_back(recurrent<nn::LSTM>("lstm_train", {12, 128, 512, 128, 2}));
  all.push_back(recurrent<nn::GRU>("gru_train", {16, 128, 512, 128, 2}));
  all.push_back(recurrent<nn::LSTM>("lstm_train", {50, 64, 256, 512, 1}));
  all.push_back(ctc({12, 128, 37, 4}));
  all.push_back(ctc({200, 32, 100, 60}));
  all.push_back(addition(elements));
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

/// The kinds in which a row is measured: dtype and math mode matter to products alone.
std::vector<std::string> kinds_of(const Row& row, Device device) {
  if (device.is_cpu() || row.flops == 0) return {"float32"};
  return {"float32", "tf32", "bfloat16"};
}
std::vector<Row> rows_for(Device device) { return rows(std::int64_t{1} << (device.is_gpu() ? 28 : 25), device.is_gpu()); }

void register_rows(Device device) {
  for (const Row& row : rows_for(device))
    for (const std::string& kind : kinds_of(row, device)) {
      const std::string name = row.name + "/" + kind + "/" + short_name(device);
      benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { run(state, row, kind, device); })
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
    }
}

/// Answers one line per question, "error TEXT" for one that fails:
///   rows                        every "ROW KIND" on a line of its own, then "end"
///   prepare ROW KIND AUTOTUNE   makes the inputs (AUTOTUNE 0 or 1): "ready FLOPS BYTES"
///   measure SECONDS             seconds of one call, per batch
///   host CALLS                  seconds of one call when that many are made without waiting for them
class Server {
 public:
  explicit Server(Device device) : device_(device), scope_(device), rows_(rows_for(device)) {
    for (Row& row : small_rows()) rows_.push_back(std::move(row));
  }
  void answer(const std::string& line) {
    std::istringstream words(line);
    std::string question;
    words >> question;
    try {
      if (question == "rows") list();
      else if (question == "prepare") prepare(words);
      else if (question == "measure") measure(words);
      else if (question == "host") host(words);
      else TL_CHECK(false, ValueError, "op_bench", "unknown question '", question, "'");
    } catch (const std::exception& error) {
      std::string text = error.what();
      std::replace(text.begin(), text.end(), '\n', ' ');
      std::cout << "error " << text;
    }
    std::cout << std::endl;
  }

 private:
  void list() const {
    for (const Row& row : rows_)
      for (const std::string& kind : kinds_of(row, device_)) std::cout << row.name << ' ' << kind << '\n';
    std::cout << "end";
  }
  void prepare(std::istream& words) {
    std::string name, kind;
    int autotune = 0;
    words >> name >> kind >> autotune;
    body_ = nullptr;
    const auto row = std::find_if(rows_.begin(), rows_.end(), [&](const Row& r) { return r.name == name; });
    TL_CHECK(row != rows_.end(), ValueError, "op_bench", "unknown row '", name, "'");
    set_kind(kind);
    config::set_autotune(autotune != 0);
    std::cerr << "row " << name << ' ' << kind << (autotune ? " autotuned" : "") << std::endl;  // heads what TENSORLITE_LOG=info says
    Body body = row->prepare(dtype_of_kind(kind));
    calls_ = batch_size(body, device_);
    body_ = std::move(body);
    std::cout << "ready " << row->flops << ' ' << row->bytes;
  }
  void measure(std::istream& words) const {
    double least = 0, spent = 0;
    words >> least;
    for (int batches = 0; batches < 3 || (spent < least && batches < 1000); ++batches) {
      const double batch = seconds(body_, device_, calls_);
      spent += batch;
      std::cout << batch / calls_ << ' ';
    }
  }
  void host(std::istream& words) const {
    int calls = 0;
    words >> calls;
    for (int batch = 0; batch < 9; ++batch) {
      synchronize(device_);
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < calls; ++i) body_();
      std::cout << std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / calls << ' ';
      synchronize(device_);
    }
  }

  Device device_;
  DeviceScope scope_;
  std::vector<Row> rows_;
  Body body_;
  int calls_ = 1;
};

Device device_of(const std::string& name) {
  const DeviceSpec spec = DeviceSpec::parse(name);
  const int index = spec.index.value_or(0);
  return spec.type == DeviceType::gpu ? gpu_device(index) : cpu_device();
}

void first_product(Device device) {
  const DeviceScope scope(device);
  const Tensor a = ones({64, 64});
  std::cout << matmul(a, a)[0][0].item<float>() << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  for (const PhysicalDevice& gpu : config::list_physical_devices("GPU")) config::set_memory_growth(gpu, true);
  const std::string mode = argc == 3 ? argv[1] : "";
  if (mode == "--first") {
    first_product(device_of(argv[2]));
    return 0;
  }
  if (mode == "--serve") {
    Server server(device_of(argv[2]));
    for (std::string line; std::getline(std::cin, line);) server.answer(line);
    return 0;
  }
  register_rows(cpu_device());
  if (!config::list_logical_devices("GPU").empty()) register_rows(gpu_device());
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
