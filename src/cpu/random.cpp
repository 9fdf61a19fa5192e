// random and dropout: every element is a function of the key and its index alone, see detail/philox.hpp.
#include "kernels.hpp"

#include "dispatch.hpp"

#include <tensorlite/detail/philox.hpp>

namespace tensorlite::cpu::TL_CPU_NS {
namespace {

namespace draws = tensorlite::detail::draws;
using tensorlite::detail::PhiloxWords;

constexpr std::int64_t kGroups = 32;  // drawn at a time, side by side, which the compiler turns into vectors
constexpr std::int64_t kBatchGrain = 64;

/// The words of groups first to first + kGroups - 1, one after the other.
using Words = std::uint32_t[kGroups * 4];
void draw(PhiloxKey key, std::uint64_t first, Words& out) {
  std::uint32_t c0[kGroups], c1[kGroups], c2[kGroups], c3[kGroups];
  for (int g = 0; g < kGroups; ++g) {
    c0[g] = static_cast<std::uint32_t>(first + static_cast<std::uint64_t>(g));
    c1[g] = static_cast<std::uint32_t>((first + static_cast<std::uint64_t>(g)) >> 32);
    c2[g] = static_cast<std::uint32_t>(key.offset);
    c3[g] = static_cast<std::uint32_t>(key.offset >> 32);
  }
  auto k0 = static_cast<std::uint32_t>(key.seed), k1 = static_cast<std::uint32_t>(key.seed >> 32);
  for (int round = 0; round < tensorlite::detail::kPhiloxRounds; ++round) {
    for (int g = 0; g < kGroups; ++g) tensorlite::detail::philox_round(c0[g], c1[g], c2[g], c3[g], k0, k1);
    tensorlite::detail::philox_bump(k0, k1);
  }
  for (int g = 0; g < kGroups; ++g) {
    out[4 * g] = c0[g];
    out[4 * g + 1] = c1[g];
    out[4 * g + 2] = c2[g];
    out[4 * g + 3] = c3[g];
  }
}

/// f(words of a batch, index of its first element, its number of elements), in parallel; a group serves `per_group` elements.
template <class F> void for_each_batch(PhiloxKey key, std::int64_t count, std::int64_t per_group, F f) {
  const std::int64_t per_batch = kGroups * per_group;
  parallel_for((count + per_batch - 1) / per_batch, kBatchGrain, [&](std::int64_t begin, std::int64_t end) {
    Words words;
    for (std::int64_t batch = begin; batch < end; ++batch) {
      draw(key, static_cast<std::uint64_t>(batch * kGroups), words);
      f(words, batch * per_batch, std::min(per_batch, count - batch * per_batch));
    }
  });
}

template <class T> void fill_random(RandomKind kind, T* out, std::int64_t count, PhiloxKey key, double a, double b) {
  constexpr std::int64_t kPer = draws::kPerGroup<T>;
  for_each_batch(key, count, kPer, [&](const Words& words, std::int64_t first, std::int64_t n) {
    const auto group = [&](std::int64_t g) { return PhiloxWords{{words[4 * g], words[4 * g + 1], words[4 * g + 2], words[4 * g + 3]}}; };
    const std::int64_t whole = n / kPer;
    for (std::int64_t g = 0; g < whole; ++g) draws::elements(kind, group(g), a, b, out + first + g * kPer);
    if (whole * kPer == n) return;
    T last[kPer];
    draws::elements(kind, group(whole), a, b, last);
    std::copy_n(last, n - whole * kPer, out + first + whole * kPer);
  });
}

/// out = dropped ? 0 : x * scale, without branches that half of the time go wrong.
template <class T, class C>
void keep_some(T* out, const T* x, const std::uint32_t* words, std::int64_t count, C scale, bool drops_some, std::uint32_t last_dropped) {
  for (std::int64_t i = 0; i < count; ++i) {
    const C kept = static_cast<C>(x[i]) * scale;
    const bool dropped = drops_some & (words[i] <= last_dropped);
    out[i] = T(dropped ? C(0) : kept);
  }
}

}  // namespace

void random(const Context& context, RandomKind kind, const View& out, PhiloxKey key, double a, double b) {
  const bool integers = kind == RandomKind::integers;
  TL_CHECK(integers != is_floating(out.dtype), DTypeError, context.op,
           integers ? "integers need an integer dtype, got " : "needs a floating-point dtype, got ", out.dtype);
  dispatch_all(context.op, out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    fill_random(kind, out.ptr<T>(), out.numel(), key, a, b);
  });
}

void dropout(const Context& context, const View& out, const View& in, double p, PhiloxKey key) {
  const std::uint64_t threshold = draws::drop_threshold(p);
  const bool drops_some = threshold > 0;
  const auto last_dropped = static_cast<std::uint32_t>(threshold - 1);  // the threshold itself may be 2^32
  dispatch_floating(context.op, out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    const auto scale = static_cast<C>(draws::keep_scale(p));
    const T* x = in.ptr<T>();
    T* y = out.ptr<T>();
    for_each_batch(key, out.numel(), 4, [&](const Words& words, std::int64_t first, std::int64_t n) {
      keep_some(y + first, x + first, words, n, scale, drops_some, last_dropped);
    });
  });
}

}  // namespace tensorlite::cpu::TL_CPU_NS
