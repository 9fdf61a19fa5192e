// What happens to a tile between its last product and memory: sum with what is there, bias, activation, conversion, ragged edges.
#pragma once

#include "gemm_kernel.hpp"

#include <tensorlite/backend.hpp>

#include <algorithm>

namespace tensorlite::cpu::TL_CPU_NS {

/// bias is read in whole packets (PaddedBias); bias and activation are applied when `last` is set.
template <class T> struct Epilogue {
  const T* bias = nullptr;
  Activation activation = Activation::none;
  bool accumulate = false;
  bool last = true;

  Epilogue at_column(std::int64_t j) const { return {bias ? bias + j : nullptr, activation, accumulate, last}; }
};

/// A copy of a bias vector in the compute type that may be read in whole tiles.
template <class T> class PaddedBias {
 public:
  template <class In>
  PaddedBias(const Context& context, const In* bias, std::int64_t n)
      : workspace_(context, bias ? sizeof(T) * static_cast<std::size_t>(n + kTileColumns<T>) : 0) {
    if (!bias) return;
    T* to = workspace_.template data<T>();
    for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(bias[i]);
    std::fill(to + n, to + n + kTileColumns<T>, T(0));
  }
  const T* data() const { return workspace_.template data<T>(); }

 private:
  Workspace workspace_;
};

template <class T> inline T activate(T x, Activation activation) {
  switch (activation) {
    case Activation::relu: return elementwise::Relu::value(x, elementwise::Params<T>{});
    case Activation::gelu: return elementwise::Gelu::value(x, elementwise::Params<T>{});
    default: return x;
  }
}

/// c = activation(tile [+ c] [+ bias]), element by element, converted to C's type.
template <class T, class Out>
void finish_tile(const T* tile, std::int64_t pitch, Out* c, std::int64_t c_stride, std::int64_t rows, std::int64_t columns,
                 const Epilogue<T>& epilogue) {
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) {
      T value = tile[i * pitch + j];
      if (std::is_same_v<T, Out> && epilogue.accumulate) value = static_cast<T>(c[i * c_stride + j]) + value;
      if (epilogue.last) {
        if (epilogue.bias) value += epilogue.bias[j];
        value = activate(value, epilogue.activation);
      }
      c[i * c_stride + j] = static_cast<Out>(value);
    }
}

/// Computes one tile and stores its first `columns` columns into C. A C of 16-bit type takes no accumulation.
template <class T, class Out>
void run_tile(AForm form, const TileInput<T>& in, std::int64_t rows, std::int64_t columns, Out* c, std::int64_t c_stride,
              const Epilogue<T>& epilogue) {
  const int packets = columns > kLanes<T> ? kTilePackets : 1;
  const TileFunction<T> function = tile_function<T>(form, static_cast<int>(rows), packets);
  if constexpr (std::is_same_v<T, Out>) {
    if (columns == packets * kLanes<T> && (!epilogue.last || epilogue.activation != Activation::gelu)) {
      const bool last = epilogue.last;
      return function(in,
                      {c, c_stride, last ? epilogue.bias : nullptr, epilogue.accumulate, last && epilogue.activation == Activation::relu});
    }
  }
  alignas(64) T tile[kTileRows * kTileColumns<T>];
  function(in, {tile, kTileColumns<T>});
  finish_tile(tile, kTileColumns<T>, c, c_stride, rows, columns, epilogue);
}

}  // namespace tensorlite::cpu::TL_CPU_NS
