// The loop of every elementwise kernel: any strides, any dtypes, in parallel. A kernel supplies a function of dense blocks of its
// compute type; operands that are not dense, or of another dtype, are packed into blocks on the stack first.
#pragma once

#include "isa.hpp"

#include <tensorlite/base.hpp>

#include <array>

namespace tensorlite::cpu::TL_CPU_NS {

/// out[i] = f(in[0][i], in[1][i], ...) for i < count. `out` may be one of the inputs.
using BlockFunction = void (*)(void* out, const void* const* in, std::int64_t count, const void* parameters);

/// A view and the dtype in which the block function sees it. A view that is absent is not looked at: the function gets null.
struct Operand {
  const View& view;
  DType block;
};

/// Elements per thread below which a second thread does not pay: for arithmetic bound by memory, and for functions like exp.
inline constexpr std::int64_t kCheapGrain = 32768, kCostlyGrain = 4096;

/// operands[0] is the output, the rest are the inputs.
template <std::size_t N> void run_blocks(BlockFunction f, const void* parameters, std::int64_t grain, const Operand (&operands)[N]);
extern template void run_blocks<2>(BlockFunction, const void*, std::int64_t, const Operand (&)[2]);
extern template void run_blocks<3>(BlockFunction, const void*, std::int64_t, const Operand (&)[3]);
extern template void run_blocks<4>(BlockFunction, const void*, std::int64_t, const Operand (&)[4]);

}  // namespace tensorlite::cpu::TL_CPU_NS
