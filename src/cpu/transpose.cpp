#include "transpose.hpp"

#include "blocks.hpp"

#include <Eigen/Core>

namespace tensorlite::cpu::TL_CPU_NS {
namespace {

constexpr std::int64_t kTile = 32;

/// Two axes of one copy: `out` is dense along columns, `in` along rows.
template <class T> struct Plane {
  T* out;
  const T* in;
  std::int64_t out_row_stride, in_column_stride;

  void move_one_by_one(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) const {
    for (std::int64_t r = row; r < rows; ++r)
      for (std::int64_t c = column; c < columns; ++c) out[r * out_row_stride + c] = in[c * in_column_stride + r];
  }
};

/// One square of a packet's width, transposed in registers.
template <class T, class S> inline void move_square(const Plane<T>& plane, std::int64_t row, std::int64_t column) {
  using Packet = typename Eigen::internal::packet_traits<S>::type;
  constexpr int kSize = Eigen::internal::unpacket_traits<Packet>::size;
  Eigen::internal::PacketBlock<Packet, kSize> block;
  for (int i = 0; i < kSize; ++i)
    block.packet[i] = Eigen::internal::ploadu<Packet>(reinterpret_cast<const S*>(plane.in + (column + i) * plane.in_column_stride + row));
  Eigen::internal::ptranspose(block);
  for (int i = 0; i < kSize; ++i)
    Eigen::internal::pstoreu(reinterpret_cast<S*>(plane.out + (row + i) * plane.out_row_stride + column), block.packet[i]);
}

template <class T>
void move_tile(const Plane<T>& plane, std::int64_t row, std::int64_t row_end, std::int64_t column, std::int64_t column_end) {
  if constexpr (sizeof(T) >= 4) {
    using S = std::conditional_t<sizeof(T) == 4, float, double>;
    constexpr int kSize = Eigen::internal::unpacket_traits<typename Eigen::internal::packet_traits<S>::type>::size;
    const std::int64_t whole_rows = row + (row_end - row) / kSize * kSize, whole_columns = column + (column_end - column) / kSize * kSize;
    for (std::int64_t r = row; r < whole_rows; r += kSize)
      for (std::int64_t c = column; c < whole_columns; c += kSize) move_square<T, S>(plane, r, c);
    plane.move_one_by_one(row, whole_rows, whole_columns, column_end);
    plane.move_one_by_one(whole_rows, row_end, column, column_end);
  } else {
    plane.move_one_by_one(row, row_end, column, column_end);
  }
}

/// The axis along which `in` is dense, -1 when there is none.
int dense_axis_of_input(const Loop<2>& loop) {
  for (int axis = 0; axis < loop.sizes.size() - 1; ++axis)
    if (loop.strides[1][axis] == 1) return axis;
  return -1;
}

}  // namespace

bool copy_transposed(const Loop<2>& loop, const View& out, const View& in) {
  const int last = loop.sizes.size() - 1, rows_axis = dense_axis_of_input(loop);
  if (rows_axis < 0 || loop.inner_stride(0) != 1 || loop.inner_stride(1) == 1 || loop.inner_stride(1) == 0) return false;
  const std::int64_t rows = loop.sizes[rows_axis], columns = loop.sizes[last];
  const std::int64_t row_tiles = (rows + kTile - 1) / kTile, column_tiles = (columns + kTile - 1) / kTile, tiles = row_tiles * column_tiles;

  Loop<2> outer = loop;  // the planes: all axes but the two
  outer.sizes.pop_back();
  outer.sizes.erase(rows_axis);
  for (Dims& strides : outer.strides) {
    strides.pop_back();
    strides.erase(rows_axis);
  }
  if (outer.sizes.empty()) {
    outer.sizes.push_back(1);
    for (Dims& strides : outer.strides) strides.push_back(0);
  }

  dispatch_bits(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto move_tiles = [&](std::int64_t offset_out, std::int64_t offset_in, std::int64_t begin, std::int64_t end) {
      const Plane<T> plane{out.ptr<T>() + offset_out, in.ptr<T>() + offset_in, loop.strides[0][rows_axis], loop.strides[1][last]};
      for (std::int64_t tile = begin; tile < end; ++tile) {
        const std::int64_t row = tile / column_tiles * kTile, column = tile % column_tiles * kTile;
        move_tile(plane, row, std::min(row + kTile, rows), column, std::min(column + kTile, columns));
      }
    };
    parallel_for(outer.sizes.product() * tiles, std::max<std::int64_t>(1, kCheapGrain / (std::min(rows, kTile) * std::min(columns, kTile))),
                 [&](std::int64_t begin, std::int64_t end) {
                   for_each_run(
                       outer, begin / tiles, (end - 1) / tiles + 1, [&](const auto& offsets, std::int64_t plane, std::int64_t count) {
                         for (std::int64_t i = 0; i < count; ++i)
                           move_tiles(offsets[0] + i * outer.inner_stride(0), offsets[1] + i * outer.inner_stride(1),
                                      std::max<std::int64_t>(0, begin - (plane + i) * tiles), std::min(tiles, end - (plane + i) * tiles));
                       });
                 });
  });
  return true;
}

}  // namespace tensorlite::cpu::TL_CPU_NS
