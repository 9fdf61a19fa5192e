// Stretches of elements in the type that kernels compute in, whatever the dtype and stride they are stored with: float for the half
// types, int64 for integers and bool. A stretch that is already so is used where it lies.
#pragma once

#include "isa.hpp"

#include <tensorlite/base.hpp>

namespace tensorlite::cpu::TL_CPU_NS {

/// to[i] = data[offset + i * stride].
template <class T> using LoadRun = void (*)(T* to, const void* data, std::int64_t offset, std::int64_t stride, std::int64_t count);
/// data[offset + i * stride] = from[i].
template <class T> using StoreRun = void (*)(void* data, std::int64_t offset, std::int64_t stride, const T* from, std::int64_t count);

/// T: float, double or int64.
template <class T> LoadRun<T> load_run(DType dtype);
template <class T> StoreRun<T> store_run(DType dtype);
/// 1 where the element is not zero, else 0.
LoadRun<std::int64_t> load_truth(DType dtype);

/// Reads stretches of a view as T.
template <class T> class Source {
 public:
  explicit Source(const View& view) : Source(view, load_run<T>(view.dtype), view.dtype == dtype_of<T>) {}
  static Source<std::int64_t> truth(const View& view) { return {view, load_truth(view.dtype), false}; }

  /// `count` contiguous values, in `buffer` unless they lie so in the view.
  const T* run(std::int64_t offset, std::int64_t stride, std::int64_t count, T* buffer) const {
    if (direct_ && stride == 1) return static_cast<const T*>(data_) + offset;
    load_(buffer, data_, offset, stride, count);
    return buffer;
  }
  const T* run(std::int64_t offset, std::int64_t count, T* buffer) const { return run(offset, 1, count, buffer); }
  void copy(T* to, std::int64_t offset, std::int64_t stride, std::int64_t count) const { load_(to, data_, offset, stride, count); }
  /// The view is T already: run() with stride 1 needs no buffer.
  bool is_direct() const { return direct_; }

 private:
  Source(const View& view, LoadRun<T> load, bool direct) : data_(view.data), load_(load), direct_(direct) {}
  template <class> friend class Source;

  const void* data_;
  LoadRun<T> load_;
  bool direct_;
};

/// Writes contiguous stretches of a view from T: fill target(), then commit().
template <class T> class Sink {
 public:
  explicit Sink(const View& view) : data_(view.data), store_(store_run<T>(view.dtype)), direct_(view.dtype == dtype_of<T>) {}

  T* target(std::int64_t offset, T* buffer) const { return direct_ ? static_cast<T*>(data_) + offset : buffer; }
  void commit(std::int64_t offset, const T* buffer, std::int64_t count) const {
    if (!direct_) store_(data_, offset, 1, buffer, count);
  }
  void store(std::int64_t offset, std::int64_t stride, const T* from, std::int64_t count) const {
    store_(data_, offset, stride, from, count);
  }
  bool is_direct() const { return direct_; }

 private:
  void* data_;
  StoreRun<T> store_;
  bool direct_;
};

}  // namespace tensorlite::cpu::TL_CPU_NS
