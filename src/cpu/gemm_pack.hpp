// Packing: a strip of a strided operand becomes a panel that a tile reads front to back.
#pragma once

#include "gemm_kernel.hpp"

#include <tensorlite/base.hpp>

#include <cstdlib>
#include <cstring>

namespace tensorlite::cpu::TL_CPU_NS {

/// Rows that fall into the same lines of the first-level cache push each other out.
template <class T> bool rows_collide(std::int64_t stride) { return stride * static_cast<std::int64_t>(sizeof(T)) % 4096 == 0; }
/// Rows so close that the hardware foresees a walk down a few columns of them.
template <class T> bool rows_are_near(std::int64_t stride) { return std::abs(stride) * static_cast<std::int64_t>(sizeof(T)) <= 2048; }

/// A strip of `width` rows (of A) or columns (of B) and `depth` steps of k, anywhere in memory.
template <class In> struct Strip {
  const In* data;
  std::int64_t width, width_stride;
  std::int64_t depth, depth_stride;
};

/// Elements that pack_strip may write past the end of a panel whose pitch is no multiple of the packet.
template <class T> inline constexpr std::int64_t kPackSlack = kLanes<T>;

namespace pack_detail {

template <class T, class In> void copy_steps(T* to, std::int64_t pitch, const Strip<In>& s, std::int64_t first, std::int64_t last) {
  for (std::int64_t k = first; k < last; ++k) {
    const In* from = s.data + k * s.depth_stride;
    T* row = to + k * pitch;
    if constexpr (std::is_same_v<T, In>)
      if (s.width_stride == 1 && s.width == kTileColumns<T>) {
        std::memcpy(row, from, sizeof(T) * kTileColumns<T>);
        continue;
      }
    if (s.width_stride == 1)
      for (std::int64_t i = 0; i < s.width; ++i) row[i] = static_cast<T>(from[i]);
    else
      for (std::int64_t i = 0; i < s.width; ++i) row[i] = static_cast<T>(from[i * s.width_stride]);
    for (std::int64_t i = s.width; i < pitch; ++i) row[i] = T(0);
  }
}

/// Steps [k, k + lanes) of lanes [i, i + lanes), k adjacent in memory. Lanes past the strip's width are written as zeros.
template <class T> void transpose_block(T* to, std::int64_t pitch, const Strip<T>& s, std::int64_t k, std::int64_t i) {
  using namespace Eigen::internal;
  constexpr int L = kLanes<T>;
  const T* from = s.data + i * s.width_stride + k;
  PacketBlock<Packet<T>, L> block;
  for (int l = 0; l < L; ++l) block.packet[l] = i + l < s.width ? ploadu<Packet<T>>(from + l * s.width_stride) : pset1<Packet<T>>(T(0));
  ptranspose(block);
  for (int l = 0; l < L; ++l) pstoreu(to + (k + l) * pitch + i, block.packet[l]);
}

}  // namespace pack_detail

/// to[k * pitch + i] = strip(i, k), zeros for width <= i < pitch. See kPackSlack.
template <class T, class In> void pack_strip(T* to, std::int64_t pitch, const Strip<In>& s) {
  std::int64_t done = 0;
  if constexpr (std::is_same_v<T, In>) {
    constexpr int L = kLanes<T>;
    if (s.depth_stride == 1 && s.width_stride != 1 && s.width > 1)
      // Blocks run over the panel's edge into the next step: the last lanes come first, so that right values land on top.
      for (; done + L <= s.depth; done += L)
        for (std::int64_t i = (pitch - 1) / L * L; i >= 0; i -= L) pack_detail::transpose_block(to, pitch, s, done, i);
  }
  pack_detail::copy_steps(to, pitch, s, done, s.depth);
}

/// Rows of A in panels of nearly equal height, each `pitch` wide: full tiles, none of them thin.
struct RowPanels {
  std::int64_t rows, count = ceil_div(rows, kTileRows);
  std::int64_t begin(std::int64_t panel) const { return part_begin(rows, count, panel); }
  std::int64_t width(std::int64_t panel) const { return begin(panel + 1) - begin(panel); }
  std::int64_t pitch(std::int64_t panel) const { return width(panel); }
};

/// Columns of B in panels of a tile's width, the last one padded to whole packets.
template <class T> struct ColumnPanels {
  std::int64_t columns, count = ceil_div(columns, kTileColumns<T>);
  std::int64_t begin(std::int64_t panel) const { return panel * kTileColumns<T>; }
  std::int64_t width(std::int64_t panel) const { return std::min<std::int64_t>(kTileColumns<T>, columns - begin(panel)); }
  std::int64_t pitch(std::int64_t panel) const { return round_up(width(panel), kLanes<T>); }
};

/// Packs a strip as panels: panel p starts at to + panels.begin(p) * depth.
template <class T, class In, class Panels> void pack_panels(T* to, const Strip<In>& s, const Panels& panels) {
  const auto panel_strip = [&](std::int64_t p, std::int64_t k, std::int64_t depth) {
    return Strip<In>{s.data + panels.begin(p) * s.width_stride + k * s.depth_stride, panels.width(p), s.width_stride, depth,
                     s.depth_stride};
  };
  if (s.width_stride != 1 || panels.count == 1) {
    for (std::int64_t p = 0; p < panels.count; ++p) pack_strip(to + panels.begin(p) * s.depth, panels.pitch(p), panel_strip(p, 0, s.depth));
    return;
  }
  constexpr std::int64_t steps = 4;  // rows of the operand read side by side, each from end to end
  for (std::int64_t k = 0; k < s.depth; k += steps)
    for (std::int64_t p = 0; p < panels.count; ++p)
      pack_strip(to + panels.begin(p) * s.depth + k * panels.pitch(p), panels.pitch(p), panel_strip(p, k, std::min(steps, s.depth - k)));
}

}  // namespace tensorlite::cpu::TL_CPU_NS
