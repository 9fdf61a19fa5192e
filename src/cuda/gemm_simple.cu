#include "accumulators.cuh"
#include "gemm.hpp"
#include "tile_gemm.cuh"

namespace tensorlite::cuda {
namespace {

/// A batch of strided matrices.
template <class T> struct Matrices {
  const T* data;
  std::int64_t batch, rows, columns;  ///< strides
  explicit Matrices(const View& v) : data(v.ptr<T>()), batch(v.stride(0)), rows(v.stride(1)), columns(v.stride(2)) {}
  __device__ SumType<T> at(std::int64_t b, std::int64_t i, std::int64_t j) const {
    return static_cast<SumType<T>>(load(data[b * batch + i * rows + j * columns]));
  }
};

template <class T> struct MatrixProduct {
  std::int64_t batches, m, n, k;
  T* out;
  Matrices<T> left, right;
  __device__ SumType<T> a(std::int64_t batch, std::int64_t row, std::int64_t depth) const { return left.at(batch, row, depth); }
  __device__ SumType<T> b(std::int64_t batch, std::int64_t depth, std::int64_t column) const { return right.at(batch, depth, column); }
  __device__ void put(std::int64_t batch, std::int64_t row, std::int64_t column, SumType<T> value, std::int64_t) const {
    out[(batch * m + row) * n + column] = store<T>(static_cast<Compute<T>>(value));
  }
};

}  // namespace

void simple_matmul(const Context& context, const View& out, const View& a, const View& b) {
  dispatch_all(context, out.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    tile_gemm<SumType<T>>(context,
                          MatrixProduct<T>{out.size(0), out.size(1), out.size(2), a.size(2), out.ptr<T>(), Matrices<T>(a), Matrices<T>(b)});
  });
}

}  // namespace tensorlite::cuda
