#include "gemm_kernel.hpp"

namespace tensorlite::cpu::TL_CPU_NS {

template <class T> TileFunction<T> tile_function(AForm form, int rows, int packets) {
  if (form == AForm::row_major)
    return packets == 1 ? tile::pick_rows<T, 1, AForm::row_major>(rows) : tile::pick_rows<T, 2, AForm::row_major>(rows);
  return packets == 1 ? tile::pick_rows<T, 1, AForm::k_major>(rows) : tile::pick_rows<T, 2, AForm::k_major>(rows);
}
template TileFunction<float> tile_function<float>(AForm, int, int);
template TileFunction<double> tile_function<double>(AForm, int, int);

}  // namespace tensorlite::cpu::TL_CPU_NS
