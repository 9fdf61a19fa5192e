#include "blocks.hpp"

#include "dispatch.hpp"
#include "move.hpp"

namespace tensorlite::cpu::TL_CPU_NS {
namespace {

constexpr std::int64_t kBlock = 512;

/// One operand's way through the index space in the order of the loop.
struct Side {
  Loop<1> loop;  // the loop's axes, merged further where this view alone allows it
  char* data = nullptr;
  std::int64_t size = 0, block_size = 0;  // bytes of an element, in the view and in a block
  Mover move = nullptr;
  bool present = false, direct = false, constant = false;  // dense and of the block's dtype; one element for all indices
};

struct alignas(64) Buffer {
  char bytes[kBlock * 8];
};

Side make_side(const Dims& sizes, const Dims& strides, bool is_output, const Operand& operand) {
  Side side;
  side.present = operand.view.present;
  if (!side.present) return side;
  side.loop.sizes = sizes;
  side.loop.strides[0] = strides;
  side.loop.numel = sizes.product();
  loop_detail::merge_axes(side.loop);
  side.data = operand.view.ptr<char>();
  side.size = size_of(operand.view.dtype);
  side.block_size = size_of(operand.block);
  side.move = is_output ? mover(operand.block, operand.view.dtype) : mover(operand.view.dtype, operand.block);
  const bool same_bits = side.move == raw_mover(operand.block);
  side.direct = same_bits && side.loop.is_dense(0);
  side.constant = side.loop.sizes.size() == 1 && side.loop.strides[0][0] == 0;
  return side;
}

void load(const Side& side, std::int64_t begin, std::int64_t count, Buffer& buffer) {
  for_each_run(side.loop, begin, begin + count, [&](const auto& offsets, std::int64_t index, std::int64_t n) {
    side.move(buffer.bytes + (index - begin) * side.block_size, 1, side.data + offsets[0] * side.size, side.loop.inner_stride(0), n);
  });
}

void store(const Side& side, std::int64_t begin, std::int64_t count, const Buffer& buffer) {
  for_each_run(side.loop, begin, begin + count, [&](const auto& offsets, std::int64_t index, std::int64_t n) {
    side.move(side.data + offsets[0] * side.size, side.loop.inner_stride(0), buffer.bytes + (index - begin) * side.block_size, 1, n);
  });
}

/// The elements [begin, end) of the loop's order.
template <std::size_t N>
void run_range(const std::array<Side, N>& sides, BlockFunction f, const void* parameters, std::int64_t begin, std::int64_t end) {
  bool all_direct = true;
  for (const Side& side : sides) all_direct = all_direct && (side.direct || !side.present);
  const std::int64_t step = all_direct ? end - begin : kBlock;
  std::array<Buffer, N> buffers;
  for (std::size_t v = 1; v < N; ++v)
    if (sides[v].constant && !all_direct) load(sides[v], begin, std::min(step, end - begin), buffers[v]);
  for (std::int64_t i = begin; i < end; i += step) {
    const std::int64_t count = std::min(step, end - i);
    const void* in[N - 1];
    for (std::size_t v = 1; v < N; ++v) {
      const Side& side = sides[v];
      if (side.present && !side.direct && !side.constant) load(side, i, count, buffers[v]);
      in[v - 1] = !side.present ? nullptr : side.direct ? side.data + i * side.size : buffers[v].bytes;
    }
    const Side& out = sides[0];
    f(out.direct ? out.data + i * out.size : buffers[0].bytes, in, count, parameters);
    if (!out.direct) store(out, i, count, buffers[0]);
  }
}

/// One element for all indices.
bool is_constant(const View& view) {
  for (int axis = 0; axis < view.dim(); ++axis)
    if (view.sizes[axis] != 1 && view.strides[axis] != 0) return false;
  return true;
}

/// Whether every view is seen by the function as it is, and is dense or, an input, a single element: no loop is needed, and small ops are
/// quicker without.
template <std::size_t N> bool all_plain(const Operand (&operands)[N]) {
  for (std::size_t v = 0; v < N; ++v) {
    const auto& [view, block] = operands[v];
    if (view.present && (view.dtype != block || !(view.is_contiguous() || (v > 0 && is_constant(view))))) return false;
  }
  return true;
}

template <std::size_t N> void run_plain(BlockFunction f, const void* parameters, std::int64_t grain, const Operand (&operands)[N]) {
  parallel_for(operands[0].view.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
    std::array<Buffer, N> buffers;
    const char* constants[N] = {};
    std::int64_t step = end - begin;
    for (std::size_t v = 1; v < N; ++v) {
      const View& view = operands[v].view;
      if (!view.present || view.is_contiguous()) continue;
      step = std::min(step, kBlock);
      raw_mover(view.dtype)(buffers[v].bytes, 1, view.data, 0, step);
      constants[v] = buffers[v].bytes;
    }
    for (std::int64_t i = begin; i < end; i += step) {
      const auto at = [&](std::size_t v) { return operands[v].view.template ptr<char>() + i * size_of(operands[v].block); };
      const void* in[N - 1];
      for (std::size_t v = 1; v < N; ++v) in[v - 1] = constants[v] ? constants[v] : operands[v].view.present ? at(v) : nullptr;
      f(at(0), in, std::min(step, end - i), parameters);
    }
  });
}

template <std::size_t N, std::size_t... V> auto loop_of(const Operand (&operands)[N], std::index_sequence<V...>) {
  return make_loop((operands[V].view.present ? operands[V].view : operands[0].view)...);
}

}  // namespace

template <std::size_t N> void run_blocks(BlockFunction f, const void* parameters, std::int64_t grain, const Operand (&operands)[N]) {
  if (operands[0].view.numel() == 0) return;
  if (all_plain(operands)) return run_plain(f, parameters, grain, operands);
  const auto loop = loop_of(operands, std::make_index_sequence<N>{});
  std::array<Side, N> sides;
  for (std::size_t v = 0; v < N; ++v) sides[v] = make_side(loop.sizes, loop.strides[v], v == 0, operands[v]);
  parallel_for(loop.numel, grain, [&](std::int64_t begin, std::int64_t end) { run_range(sides, f, parameters, begin, end); });
}

template void run_blocks<2>(BlockFunction, const void*, std::int64_t, const Operand (&)[2]);
template void run_blocks<3>(BlockFunction, const void*, std::int64_t, const Operand (&)[3]);
template void run_blocks<4>(BlockFunction, const void*, std::int64_t, const Operand (&)[4]);

}  // namespace tensorlite::cpu::TL_CPU_NS
