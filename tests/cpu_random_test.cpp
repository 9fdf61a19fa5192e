// random and dropout of the CPU: known answers, distributions, and the same bits for any number of threads.
#include "kernel_test.hpp"

#include <tensorlite/detail/philox.hpp>

#include <algorithm>
#include <set>

using namespace kernel_test;

namespace {

constexpr PhiloxKey kKey = {123, 45};

Array random_array(RandomKind kind, DType dtype, std::int64_t count, double a, double b, PhiloxKey key = kKey) {
  Array out(dtype, {count});
  TL_KERNEL(random, kind, out, key, a, b);
  return out;
}

/// Mean and standard deviation.
std::pair<double, double> moments(const Array& x) {
  double sum = 0, square = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) sum += x[i], square += x[i] * x[i];
  const double mean = sum / static_cast<double>(x.numel());
  return {mean, std::sqrt(square / static_cast<double>(x.numel()) - mean * mean)};
}

}  // namespace

TEST_CASE("Philox4x32-10 gives the known answers", "[cpu]") {
  const auto words = [](std::uint64_t low, std::uint64_t high, std::uint64_t seed) {
    const detail::PhiloxWords w = detail::philox(low, high, seed);
    return std::vector<std::uint32_t>(w.word, w.word + 4);
  };
  using Words = std::vector<std::uint32_t>;
  CHECK(words(0, 0, 0) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(words(~0ull, ~0ull, ~0ull) == Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(words(0x85a308d3243f6a88, 0x0370734413198a2e, 0x299f31d0a4093822) == Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("the kernel draws what philox.hpp says, element by element", "[cpu]") {
  const RandomKind kind = GENERATE(RandomKind::uniform, RandomKind::normal);
  const std::int64_t count = GENERATE(0, 1, 3, 127, 128, 1001);
  const auto check = [&](auto zero) {
    using T = decltype(zero);
    constexpr std::int64_t kPer = detail::draws::kPerGroup<T>;
    const Array out = random_array(kind, dtype_of<T>, count, -1, 3);
    for (std::int64_t i = 0; i < count; ++i) {
      T group[4];
      detail::draws::elements(kind, detail::philox(kKey, static_cast<std::uint64_t>(i / kPer)), -1, 3, group);
      REQUIRE(out.view().ptr<T>()[i] == group[i % kPer]);
    }
  };
  check(0.0f);
  check(0.0);
  check(float16());
  check(bfloat16());
}

TEST_CASE("the same bits with 1 and 2 threads, others with another key", "[cpu]") {
  const DType dtype = GENERATE(kFloat32, kFloat64, kBFloat16);
  const RandomKind kind = GENERATE(RandomKind::uniform, RandomKind::normal);
  require_same_bits([&] { return random_array(kind, dtype, 100001, 0, 1); });
  const Array x = random_array(kind, dtype, 1000, 0, 1);
  REQUIRE(!x.same_bits(random_array(kind, dtype, 1000, 0, 1, {kKey.seed, kKey.offset + 1})));
  REQUIRE(!x.same_bits(random_array(kind, dtype, 1000, 0, 1, {kKey.seed + 1, kKey.offset})));
}

TEST_CASE("uniform numbers fill [a, b) evenly and never reach b", "[cpu]") {
  const DType dtype = GENERATE(kFloat32, kFloat64, kFloat16, kBFloat16);
  const Array x = random_array(RandomKind::uniform, dtype, 200000, -1, 3);
  double least = 9, most = -9;
  for (std::int64_t i = 0; i < x.numel(); ++i) least = std::min(least, x[i]), most = std::max(most, x[i]);
  CHECK((least >= -1 && least < -0.99));
  CHECK((most < 3 && most > 2.97));
  const auto [mean, deviation] = moments(x);
  CHECK(mean == Approx(1).margin(0.015));
  CHECK(deviation == Approx(4 / std::sqrt(12.0)).margin(0.01));
  const Array same = random_array(RandomKind::uniform, dtype, 100, 2, 2);
  CHECK(same[0] == 2);
}

TEST_CASE("the largest word stays below b in every dtype", "[cpu]") {
  using namespace detail::draws;
  CHECK(uniform<float>(~0u, 0, 1) < 1);
  CHECK(uniform<float>(~0u, 1, 1.0000001f) < 1.0000001f);
  CHECK(static_cast<float>(uniform<float16>(~0u, 0, 1)) == 1 - 0x1p-11f);
  CHECK(static_cast<float>(uniform<bfloat16>(~0u, -1, 0)) < 0);
  CHECK(static_cast<float>(uniform<float16>(~0u, -2, -1)) < -1);
  CHECK(uniform(~std::uint64_t{0}, 0.0, 1.0) < 1);
  CHECK(uniform<float>(0, 0, 1) == 0);
}

TEST_CASE("normal numbers have their moments and tails, and neighbours do not agree", "[cpu]") {
  const DType dtype = GENERATE(kFloat32, kFloat64);
  const Array x = random_array(RandomKind::normal, dtype, 400000, 2, 3);
  const auto [mean, deviation] = moments(x);
  CHECK(mean == Approx(2).margin(0.02));
  CHECK(deviation == Approx(3).margin(0.015));
  double third = 0, fourth = 0, neighbours = 0;
  std::int64_t beyond3 = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double z = (x[i] - 2) / 3;
    third += z * z * z;
    fourth += z * z * z * z;
    beyond3 += std::abs(z) > 3;
    if (i) neighbours += z * (x[i - 1] - 2) / 3;
  }
  const auto n = static_cast<double>(x.numel());
  CHECK(third / n == Approx(0).margin(0.025));
  CHECK(fourth / n == Approx(3).margin(0.08));
  CHECK(neighbours / n == Approx(0).margin(0.008));
  CHECK(static_cast<double>(beyond3) / n == Approx(0.0027).margin(0.0004));
}

TEST_CASE("a normal pair is Box-Muller's to a few units in the last place", "[cpu]") {
  const long double two_pi = 6.28318530717958647692528676656L;
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const detail::PhiloxWords w = detail::philox(kKey, i);
    const auto single = detail::draws::normal_pair(w.word[0], w.word[1]);
    const long double u = std::fma(static_cast<float>(w.word[0]), 0x1p-32f, 0x1p-33f), radius = std::sqrt(-2 * std::log(u));
    const long double angle = static_cast<long double>(w.word[1]) * 0x1p-32L * two_pi;
    REQUIRE(static_cast<double>(std::fabs(single.first - radius * std::cos(angle))) < 1e-6);
    REQUIRE(static_cast<double>(std::fabs(single.second - radius * std::sin(angle))) < 1e-6);
    const std::uint64_t a = detail::join(w.word[1], w.word[0]), b = detail::join(w.word[3], w.word[2]);
    const auto both = detail::draws::normal_pair(a, b);
    const long double radius2 = std::sqrt(-2 * std::log(static_cast<long double>((a >> 11) + 1) * 0x1p-53L));
    REQUIRE(static_cast<double>(std::fabs(both.first - radius2 * std::cos(static_cast<long double>(b) * 0x1p-64L * two_pi))) < 3e-15);
  }
}

TEST_CASE("integers cover [a, b) evenly", "[cpu]") {
  const DType dtype = GENERATE(kInt32, kInt64, kUInt8);
  const double low = dtype == kUInt8 ? 3 : -3;
  const Array x = random_array(RandomKind::integers, dtype, 70000, low, low + 7);
  std::vector<int> counts(7);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    REQUIRE((x[i] >= low && x[i] < low + 7));
    ++counts[static_cast<std::size_t>(x[i] - low)];
  }
  for (const int count : counts) CHECK(std::abs(count - 10000) < 450);
  CHECK_THROWS_AS(random_array(RandomKind::integers, kFloat32, 4, 0, 2), DTypeError);
  CHECK_THROWS_AS(random_array(RandomKind::normal, kInt32, 4, 0, 2), DTypeError);
}

TEST_CASE("dropout's mask depends on key and index alone, whatever dtype and threads", "[cpu]") {
  constexpr std::int64_t kCount = 1000003;
  const auto drop = [](DType dtype, double p, PhiloxKey key) {
    Array in(dtype, {kCount}), out(dtype, {kCount});
    in.fill(1);
    TL_KERNEL(dropout, out, in, p, key);
    return out;
  };
  require_same_bits([&] { return drop(kFloat32, 0.5, kKey); });
  const Array one = drop(kFloat32, 0.5, kKey), other = drop(kFloat64, 0.5, kKey), next = drop(kFloat32, 0.5, {kKey.seed, kKey.offset + 1});
  std::int64_t kept = 0, agreements = 0;
  for (std::int64_t i = 0; i < kCount; ++i) {
    if (one[i] != other[i]) REQUIRE(one[i] == other[i]);
    if (one[i] != 0 && one[i] != 2) REQUIRE(one[i] == 2);
    kept += one[i] != 0;
    agreements += (one[i] != 0) == (next[i] != 0);
  }
  CHECK(std::abs(kept - kCount / 2) < 2000);
  CHECK(std::abs(agreements - kCount / 2) < 2000);
  const Array rare = drop(kFloat32, 0.1, kKey);
  CHECK(moments(rare).first == Approx(1).margin(0.002));
}

TEST_CASE("dropout at p = 1 gives zeros and at p = 0 the input, without NaN", "[cpu]") {
  const DType dtype = GENERATE(kFloat32, kFloat64, kFloat16);
  const Array in = Array::of(dtype, {5}, {1, 2, 3, std::numeric_limits<double>::infinity(), -4});
  Array out(dtype, {5});
  TL_KERNEL(dropout, out, in, 1.0, kKey);
  require_close(out, {0, 0, 0, 0, 0}, 0);
  TL_KERNEL(dropout, out, in, 0.0, kKey);
  require_close(out, {1, 2, 3, std::numeric_limits<double>::infinity(), -4}, 0);
}

TEST_CASE("shuffle keeps every element and depends on the key", "[cpu]") {
  std::vector<int> values(1000), again;
  for (int i = 0; i < 1000; ++i) values[static_cast<std::size_t>(i)] = i;
  again = values;
  detail::shuffle(std::span(values), kKey);
  detail::shuffle(std::span(again), kKey);
  CHECK(values == again);
  CHECK(std::set<int>(values.begin(), values.end()).size() == 1000);
  CHECK(!std::is_sorted(values.begin(), values.end()));
}
