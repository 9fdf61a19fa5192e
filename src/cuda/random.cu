// random and dropout: every element is a function of the key and its index alone, see detail/philox.hpp.
#include "graph.hpp"
#include "launch.cuh"
#include "numeric.cuh"

#include <tensorlite/detail/philox.hpp>

namespace tensorlite::cuda {
namespace {

namespace draws = tensorlite::detail::draws;
using tensorlite::detail::philox;
using tensorlite::detail::PhiloxWords;

/// The key of a draw; in a graph its seed and the first offset are what the run was given.
struct Key {
  PhiloxKey own;
  const PhiloxKey* base;
  __device__ PhiloxKey get() const { return base ? PhiloxKey{base->seed, base->offset + own.offset} : own; }
};

template <class T> struct FillGroup {
  RandomKind kind;
  T* out;
  std::int64_t count;
  Key key;
  double a, b;
  __device__ void operator()(std::int64_t group) const {
    constexpr int kPer = draws::kPerGroup<T>;
    T values[kPer];
    draws::elements(kind, philox(key.get(), static_cast<std::uint64_t>(group)), a, b, values);
#pragma unroll
    for (int i = 0; i < kPer; ++i)
      if (group * kPer + i < count) out[group * kPer + i] = values[i];
  }
};

template <class T> struct DropGroup {
  T* out;
  const T* in;
  std::int64_t count;
  Key key;
  Compute<T> scale;
  bool drops_some, packed;
  std::uint32_t last_dropped;
  __device__ T keep(T x, std::uint32_t word) const {
    return drops_some && word <= last_dropped ? store<T>(Compute<T>(0)) : store<T>(load(x) * scale);
  }
  __device__ void operator()(std::int64_t group) const {
    const PhiloxWords words = philox(key.get(), static_cast<std::uint64_t>(group));
    const std::int64_t first = group * 4;
    if (packed && first + 4 <= count) {
      Pack<T, 4> pack = reinterpret_cast<const Pack<T, 4>*>(in)[group];
#pragma unroll
      for (int i = 0; i < 4; ++i) pack.v[i] = keep(pack.v[i], words.word[i]);
      reinterpret_cast<Pack<T, 4>*>(out)[group] = pack;
    } else {
      for (int i = 0; i < 4 && first + i < count; ++i) out[first + i] = keep(in[first + i], words.word[i]);
    }
  }
};

}  // namespace

void random(const Context& context, RandomKind kind, const View& out, PhiloxKey key, double a, double b) {
  const bool integers = kind == RandomKind::integers;
  TL_CHECK(integers != is_floating(out.dtype), DTypeError, context.op,
           integers ? "integers need an integer dtype, got " : "needs a floating-point dtype, got ", out.dtype);
  dispatch_all(context, out.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr std::int64_t kPer = draws::kPerGroup<T>;
    for_each_index(context, (out.numel() + kPer - 1) / kPer, FillGroup<T>{kind, out.ptr<T>(), out.numel(), {key, base_key(context)}, a, b});
  });
}

void dropout(const Context& context, const View& out, const View& in, double p, PhiloxKey key) {
  const std::uint64_t threshold = draws::drop_threshold(p);
  dispatch_floating(context, out.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto aligned = [](const void* data) { return reinterpret_cast<std::uintptr_t>(data) % alignof(Pack<T, 4>) == 0; };
    for_each_index(context, (out.numel() + 3) / 4,
                   DropGroup<T>{out.ptr<T>(),
                                in.ptr<T>(),
                                out.numel(),
                                {key, base_key(context)},
                                static_cast<Compute<T>>(draws::keep_scale(p)),
                                threshold > 0,
                                aligned(out.data) && aligned(in.data),
                                static_cast<std::uint32_t>(threshold - 1)});
  });
}

}  // namespace tensorlite::cuda
