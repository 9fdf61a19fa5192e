// Captchas a second that one thread draws.
#include "generator.hpp"

#include <benchmark/benchmark.h>

namespace {

void draw(benchmark::State& state) {
  const captcha::ImageSize size{static_cast<int>(state.range(0)), static_cast<int>(state.range(1))};
  const captcha::Generator generator(size, captcha::kLettersAndDigits, 1,
                                     std::make_shared<const captcha::Glyphs>(captcha::Glyphs::default_font(), captcha::kLettersAndDigits));
  std::vector<std::uint8_t> rgb(size.bytes());
  std::int64_t index = 0;
  for (auto _ : state) {
    generator.draw(index++, rgb);
    benchmark::DoNotOptimize(rgb.data());
  }
  state.SetItemsProcessed(state.iterations());
}

}  // namespace

BENCHMARK(draw)->Args({192, 64})->Args({128, 64});

BENCHMARK_MAIN();
