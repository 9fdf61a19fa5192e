// The register tile of every matrix product and convolution: rows x columns of C stay in registers while k runs, on Eigen's packets.
#pragma once

#include "isa.hpp"

#include <Eigen/Core>

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>
#include <utility>

/// Between a lambda's parameters and its body: it is inlined wherever it is called.
#if defined(_MSC_VER) && !defined(__clang__)
#define TL_INLINE_LAMBDA [[msvc::forceinline]]
#else
#define TL_INLINE_LAMBDA __attribute__((always_inline))
#endif

namespace tensorlite::cpu::TL_CPU_NS {

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
inline std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }
/// Where part `i` of `parts` nearly equal parts of `count` starts.
inline std::int64_t part_begin(std::int64_t count, std::int64_t parts, std::int64_t i) {
  return count / parts * i + std::min(i, count % parts);
}

/// The type that In's products are computed and summed in.
template <class In> using GemmType = std::conditional_t<std::is_same_v<In, double>, double, float>;

template <class T> using Packet = typename Eigen::internal::packet_traits<T>::type;
template <class T> inline constexpr int kLanes = Eigen::internal::unpacket_traits<Packet<T>>::size;

/// Rows of the largest tile: its accumulators, two packets of B and one of A fill the register file.
#if defined(EIGEN_VECTORIZE_AVX512) || defined(EIGEN_VECTORIZE_NEON)
inline constexpr int kTileRows = 14;
#elif defined(EIGEN_VECTORIZE_AVX)
inline constexpr int kTileRows = 6;
#else
inline constexpr int kTileRows = 4;
#endif
inline constexpr int kTilePackets = 2;
template <class T> inline constexpr int kTileColumns = kTilePackets* kLanes<T>;

/// How a tile reads A: row_major takes a[i * a_stride + k] (an operand in place), k_major a[k * a_stride + i] (a packed panel).
enum class AForm : std::uint8_t { row_major, k_major };

/// C(i, j) = sum over segments and k of A(i, k) * B(k, j). Segment s of A starts at a + a_offsets[s]; B runs on from one segment to
/// the next, skipping b_skip elements. B is read in whole packets.
template <class T> struct TileInput {
  const T* a;
  std::int64_t a_stride;
  const std::int64_t* a_offsets;
  const T* b;
  std::int64_t b_stride;
  std::int64_t depth;  ///< k of one segment
  std::int64_t segments = 1;
  std::int64_t b_skip = 0;
  /// Memory wanted soon, fetched into the second-level cache at ahead_step bytes per k while this tile computes.
  const char* ahead = nullptr;
  std::int64_t ahead_step = 0;
};

/// c = relu(sum [+ c] [+ bias]), written in whole packets.
template <class T> struct TileOutput {
  T* c;
  std::int64_t c_stride;
  const T* bias = nullptr;  ///< of the tile's first column, null for none
  bool accumulate = false;
  bool relu = false;
};

template <class T> using TileFunction = void (*)(const TileInput<T>&, const TileOutput<T>&);

namespace tile {

template <class F, int... I> EIGEN_ALWAYS_INLINE void unroll(F&& f, std::integer_sequence<int, I...>) {
  (f(std::integral_constant<int, I>{}), ...);
}
/// f(0), f(1), ... with constants, so that arrays of packets become registers. f must be a TL_INLINE_LAMBDA: one call that is left to
/// the compiler, and that it does not inline (g++ 13 and clang do not), puts every array it captures into memory.
template <int N, class F> EIGEN_ALWAYS_INLINE void unroll(F&& f) { unroll(f, std::make_integer_sequence<int, N>{}); }

EIGEN_ALWAYS_INLINE void fetch_ahead(const char* line) {
#if defined(__GNUC__)
  __builtin_prefetch(line, 0, 2);
#else
  static_cast<void>(line);
#endif
}

/// A pointer per five rows and the multiples 1 to 4 of the stride: all that x86 can address in fifteen integer registers.
template <class T, int Rows, AForm form> struct ARows {
  static constexpr int kGroup = 5, kGroups = (Rows + kGroup - 1) / kGroup;
  const T* group[kGroups];
  std::int64_t stride;

  EIGEN_ALWAYS_INLINE ARows(const T* a, std::int64_t stride_) : stride(stride_) {
    unroll<kGroups>([&](auto g) TL_INLINE_LAMBDA { group[g] = a + g * kGroup * stride; });
  }
  template <int I> EIGEN_ALWAYS_INLINE T at() const { return group[I / kGroup][(I % kGroup) * stride]; }
  EIGEN_ALWAYS_INLINE void next() {
    unroll<kGroups>([&](auto g) TL_INLINE_LAMBDA { ++group[g]; });
  }
};
template <class T, int Rows> struct ARows<T, Rows, AForm::k_major> {
  const T* a;
  std::int64_t stride;
  EIGEN_ALWAYS_INLINE ARows(const T* a_, std::int64_t stride_) : a(a_), stride(stride_) {}
  template <int I> EIGEN_ALWAYS_INLINE T at() const { return a[I]; }
  EIGEN_ALWAYS_INLINE void next() { a += stride; }
};

template <class T, int Rows, int Packets, AForm form> void compute(const TileInput<T>& in, const TileOutput<T>& out) {
  using namespace Eigen::internal;
  using P = Packet<T>;
  constexpr int L = kLanes<T>;
  P acc[Rows][Packets];
  unroll<Rows>([&](auto i) TL_INLINE_LAMBDA { unroll<Packets>([&](auto j) TL_INLINE_LAMBDA { acc[i][j] = pset1<P>(T(0)); }); });

  const T* b = in.b;
  const std::int64_t b_stride = in.b_stride, depth = in.depth, ahead_step = in.ahead_step;
  const char* ahead = in.ahead ? in.ahead : reinterpret_cast<const char*>(b);
  for (std::int64_t s = 0; s < in.segments; ++s, b += in.b_skip) {
    ARows<T, Rows, form> a(in.a + in.a_offsets[s], in.a_stride);
    for (std::int64_t k = 0; k < depth; ++k, b += b_stride, ahead += ahead_step, a.next()) {
      fetch_ahead(ahead);
      P bk[Packets];
      unroll<Packets>([&](auto j) TL_INLINE_LAMBDA { bk[j] = ploadu<P>(b + j * L); });
      unroll<Rows>([&](auto i) TL_INLINE_LAMBDA {
        const P ai = pset1<P>(a.template at<i>());
        unroll<Packets>([&](auto j) TL_INLINE_LAMBDA { acc[i][j] = pmadd(ai, bk[j], acc[i][j]); });
      });
    }
  }

  T* const c = out.c;
  const std::int64_t c_stride = out.c_stride;
  if (out.accumulate)
    unroll<Rows>([&](auto i) TL_INLINE_LAMBDA {
      unroll<Packets>([&](auto j) TL_INLINE_LAMBDA { acc[i][j] = padd(ploadu<P>(c + i * c_stride + j * L), acc[i][j]); });
    });
  if (out.bias)
    unroll<Packets>([&](auto j) TL_INLINE_LAMBDA {
      const P bias = ploadu<P>(out.bias + j * L);
      unroll<Rows>([&](auto i) TL_INLINE_LAMBDA { acc[i][j] = padd(acc[i][j], bias); });
    });
  if (out.relu) {
    const P zero = pset1<P>(T(0));
    unroll<Rows>([&](auto i) TL_INLINE_LAMBDA {
      unroll<Packets>([&](auto j) TL_INLINE_LAMBDA { acc[i][j] = pmax<Eigen::PropagateNaN>(acc[i][j], zero); });
    });
  }
  unroll<Rows>([&](auto i)
                   TL_INLINE_LAMBDA { unroll<Packets>([&](auto j) TL_INLINE_LAMBDA { pstoreu(c + i * c_stride + j * L, acc[i][j]); }); });
}

template <class T, int Packets, AForm form> TileFunction<T> pick_rows(int rows) {
  static constexpr auto functions = []<int... I>(std::integer_sequence<int, I...>) {
    return std::array<TileFunction<T>, sizeof...(I)>{&compute<T, I + 1, Packets, form>...};
  }
  (std::make_integer_sequence<int, kTileRows>{});
  return functions[static_cast<std::size_t>(rows - 1)];
}

}  // namespace tile

/// The tile function of 1 to kTileRows rows and 1 to kTilePackets packets of columns. Every one adds the same products in the same
/// order, so a result does not depend on how a matrix is cut into tiles.
template <class T> TileFunction<T> tile_function(AForm form, int rows, int packets);

}  // namespace tensorlite::cpu::TL_CPU_NS
