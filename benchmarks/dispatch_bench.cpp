// What an op costs besides its arithmetic: the call of a kernel, placement, memory, and a whole small op.
// Budgets: TL_CALL at most 15 ns over a direct call; adding two 8-element tensors at most 250 ns, 400 ns when recorded.
#include <tensorlite/tensorlite.hpp>

#include <benchmark/benchmark.h>

namespace {

namespace tl = tensorlite;

/// A fill of no elements, so that nothing but the call remains.
tl::View no_elements() { return tl::View(nullptr, tl::kFloat32, tl::cpu_device(), {0}, {1}); }
const tl::detail::OpPlace kFill{"Fill", tl::cpu_device()};

void direct_call(benchmark::State& state) {
  const tl::detail::KernelCall call(kFill);
  const volatile auto kernel = call.kernels().fill;  // not inlined, as in TL_CALL
  const tl::View view = no_elements();
  for (auto _ : state) kernel(call.context(), view, 1);
}
BENCHMARK(direct_call);

void tl_call(benchmark::State& state) {
  const tl::View view = no_elements();
  for (auto _ : state) TL_CALL(kFill, fill, view, 1);
}
BENCHMARK(tl_call)->ThreadRange(1, 2);

void place_two_inputs(benchmark::State& state) {
  const tl::Device inputs[2] = {tl::cpu_device(), tl::cpu_device()};
  for (auto _ : state) benchmark::DoNotOptimize(tl::detail::place_op("AddV2", inputs, 2));
}
BENCHMARK(place_two_inputs);

void scope(benchmark::State& state) {
  for (auto _ : state) tl::DeviceScope cpu(tl::cpu_device());
}
BENCHMARK(scope);

void allocate_and_release(benchmark::State& state) {
  for (auto _ : state) {
    void* data = tl::detail::allocate(tl::cpu_device(), static_cast<std::size_t>(state.range(0)));
    benchmark::DoNotOptimize(data);
    tl::detail::release(tl::cpu_device(), data);
  }
}
BENCHMARK(allocate_and_release)->Arg(32)->Arg(4096)->Arg(10 << 20);

void add_8(benchmark::State& state) {
  const tl::DeviceScope cpu("/CPU:0");
  const tl::Tensor a = tl::ones({8}), b = tl::ones({8});
  for (auto _ : state) benchmark::DoNotOptimize(a + b);
}
BENCHMARK(add_8)->ThreadRange(1, 2);

void add_8_recorded(benchmark::State& state) {
  const tl::DeviceScope cpu("/CPU:0");
  const tl::Tensor a = tl::ones({8}, {.requires_grad = true}), b = tl::ones({8});
  for (auto _ : state) benchmark::DoNotOptimize(a + b);
}
BENCHMARK(add_8_recorded);

/// A result of 128 MiB: from the pool, and from fresh pages, as without one.
void relu_32m(benchmark::State& state) {
  const tl::DeviceScope cpu("/CPU:0");
  const tl::Tensor x = tl::ones({32 << 20});
  const bool fresh_pages = state.range(0) != 0;
  tl::relu(x);  // touches pages that the machine itself has not used before
  for (auto _ : state) {
    benchmark::DoNotOptimize(tl::relu(x));
    if (fresh_pages) tl::config::trim("CPU:0");
  }
  state.SetBytesProcessed(state.iterations() * x.nbytes() * 2);
}
BENCHMARK(relu_32m)->ArgName("fresh_pages")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
