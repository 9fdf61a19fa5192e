// The CPU's matrix product and the three convolution kernels, each alone and without the front end: GFLOP/s per row, by Google Benchmark.
// Names are m/n/k/layout (NN, NT, TN: which operand is transposed) and n/c/size/o/kernel/stride/padding/groups.
#include <tensorlite/backend.hpp>
#include <tensorlite/device.hpp>

#include <benchmark/benchmark.h>

#include <random>
#include <vector>

namespace {

using namespace tensorlite;
using Values = std::vector<float>;

Values random_values(std::int64_t count) {
  std::mt19937 generator(1);
  std::uniform_real_distribution<float> numbers(-1, 1);
  Values values(static_cast<std::size_t>(count));
  for (float& v : values) v = numbers(generator);
  return values;
}
View view(Values& values, const Dims& sizes) { return {values.data(), kFloat32, cpu_device(), sizes, contiguous_strides(sizes)}; }

void count_flops(benchmark::State& state, double products) {
  state.counters["GFLOP/s"] = benchmark::Counter(2e-9 * products, benchmark::Counter::kIsIterationInvariantRate);
}

/// The first call loads backends, starts threads and touches scratch memory: it does not count.
template <class F> void measure(benchmark::State& state, F&& f) {
  f();
  for (auto _ : state) f();
}

enum Layout { NN, NT, TN };

void gemm(benchmark::State& state) {
  const std::int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  Values a = random_values(m * k), b = random_values(k * n), c(static_cast<std::size_t>(m * n));
  View left = view(a, {1, m, k}), right = view(b, {1, k, n});
  if (state.range(3) == TN) left.strides = {0, 1, m};
  if (state.range(3) == NT) right.strides = {0, 1, k};
  measure(state, [&] {
    TL_CALL((detail::OpPlace{"MatMul", cpu_device()}), matmul, view(c, {1, m, n}), left, right, View{}, Activation::none);
  });
  count_flops(state, static_cast<double>(m * n) * static_cast<double>(k));
}

struct Conv {
  std::int64_t n, c, size, o, kernel, out;
  ConvParams params;
  Values in, weight, result;

  explicit Conv(const benchmark::State& s)
      : n(s.range(0)),
        c(s.range(1)),
        size(s.range(2)),
        o(s.range(3)),
        kernel(s.range(4)),
        out((size + 2 * s.range(6) - kernel) / s.range(5) + 1),
        params{{s.range(5), s.range(5)}, {1, 1}, {s.range(6), s.range(6), s.range(6), s.range(6)}, s.range(7)},
        in(random_values(n * size * size * c)),
        weight(random_values(o * kernel * kernel * c / params.groups)),
        result(random_values(n * out * out * o)) {}
  View in_view() { return view(in, {n, size, size, c}); }
  View weight_view() { return view(weight, {o, kernel, kernel, c / params.groups}); }
  View result_view() { return view(result, {n, out, out, o}); }
  double products() const { return static_cast<double>(n * out * out * o) * static_cast<double>(kernel * kernel * c / params.groups); }
};

const detail::OpPlace kConv{"Conv2D", cpu_device()};

void conv(benchmark::State& state) {
  Conv x(state);
  Values bias = random_values(x.o);
  measure(state,
          [&] { TL_CALL(kConv, conv2d, x.result_view(), x.in_view(), x.weight_view(), view(bias, {x.o}), x.params, Activation::relu); });
  count_flops(state, x.products());
}
void conv_input_gradient(benchmark::State& state) {
  Conv x(state);
  measure(state, [&] { TL_CALL(kConv, conv2d_backward_input, x.in_view(), x.result_view(), x.weight_view(), x.params); });
  count_flops(state, x.products());
}
void conv_weight_gradient(benchmark::State& state) {
  Conv x(state);
  Values bias(static_cast<std::size_t>(x.o));
  measure(state,
          [&] { TL_CALL(kConv, conv2d_backward_weight, x.weight_view(), view(bias, {x.o}), x.result_view(), x.in_view(), x.params); });
  count_flops(state, x.products());
}

void gemm_rows(benchmark::internal::Benchmark* rows) {
  for (const std::int64_t n : {64, 256, 512, 1024, 2048}) rows->Args({n, n, n, NN});
  rows->Args({512, 512, 512, NT})->Args({512, 512, 512, TN});
  rows->Args({64, 128, 9216, NT})->Args({64, 9216, 128, NN})->Args({128, 9216, 64, TN})->Args({64, 10, 128, NT});
  rows->Args({128, 256, 3136, NT})
      ->Args({36864, 64, 288, NN})
      ->Args({64, 4096, 4096, NT})
      ->Args({1, 1024, 1024, NN})
      ->Args({1, 1024, 1024, NT});
}
void conv_rows(benchmark::internal::Benchmark* rows) {
  rows->Args({64, 1, 28, 32, 3, 1, 0, 1})->Args({64, 32, 26, 64, 3, 1, 0, 1})->Args({86, 32, 28, 32, 5, 1, 2, 1});
  rows->Args({128, 128, 16, 128, 3, 1, 1, 1})->Args({32, 64, 56, 64, 3, 1, 1, 1})->Args({32, 256, 14, 256, 3, 1, 1, 1});
  rows->Args({32, 256, 56, 64, 1, 1, 0, 1})->Args({32, 3, 224, 64, 7, 2, 3, 1})->Args({16, 64, 28, 64, 3, 1, 1, 64});
}
BENCHMARK(gemm)->Apply(gemm_rows)->UseRealTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(conv)->Apply(conv_rows)->UseRealTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(conv_input_gradient)->Apply(conv_rows)->UseRealTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(conv_weight_gradient)->Apply(conv_rows)->UseRealTime()->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
