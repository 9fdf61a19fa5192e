#include "runs.hpp"

#include "dispatch.hpp"
#include "move.hpp"

namespace tensorlite::cpu::TL_CPU_NS {
namespace {

template <class T> inline constexpr bool kIsHalf = !std::is_same_v<ComputeType<T>, T>;

template <class T, class S> void load(T* to, const void* data, std::int64_t offset, std::int64_t stride, std::int64_t count) {
  const S* from = static_cast<const S*>(data) + offset;
  if constexpr (kIsHalf<S> && std::is_same_v<T, float>) {
    static const Mover move = mover(dtype_of<S>, kFloat32);
    move(to, 1, from, stride, count);
  } else if (stride == 1) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(from[i]);
  } else {
    for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(from[i * stride]);
  }
}

template <class S> void truth(std::int64_t* to, const void* data, std::int64_t offset, std::int64_t stride, std::int64_t count) {
  const S* from = static_cast<const S*>(data) + offset;
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<ComputeType<S>>(from[i * stride]) != ComputeType<S>(0);
}

template <class S, class T> S convert(T value) {
  if constexpr (kIsHalf<S>) return S(static_cast<float>(value));
  else return static_cast<S>(value);
}

template <class T, class S> void store(void* data, std::int64_t offset, std::int64_t stride, const T* from, std::int64_t count) {
  S* to = static_cast<S*>(data) + offset;
  if constexpr (kIsHalf<S> && std::is_same_v<T, float>) {
    static const Mover move = mover(kFloat32, dtype_of<S>);
    move(to, stride, from, 1, count);
  } else if (stride == 1) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = convert<S>(from[i]);
  } else {
    for (std::int64_t i = 0; i < count; ++i) to[i * stride] = convert<S>(from[i]);
  }
}

}  // namespace

template <class T> LoadRun<T> load_run(DType dtype) {
  return dispatch_all("load", dtype, [](auto tag) -> LoadRun<T> { return load<T, typename decltype(tag)::type>; });
}
template <class T> StoreRun<T> store_run(DType dtype) {
  return dispatch_all("store", dtype, [](auto tag) -> StoreRun<T> { return store<T, typename decltype(tag)::type>; });
}
LoadRun<std::int64_t> load_truth(DType dtype) {
  return dispatch_all("load", dtype, [](auto tag) -> LoadRun<std::int64_t> { return truth<typename decltype(tag)::type>; });
}

template LoadRun<float> load_run<float>(DType);
template LoadRun<double> load_run<double>(DType);
template LoadRun<std::int64_t> load_run<std::int64_t>(DType);
template StoreRun<float> store_run<float>(DType);
template StoreRun<double> store_run<double>(DType);
template StoreRun<std::int64_t> store_run<std::int64_t>(DType);

}  // namespace tensorlite::cpu::TL_CPU_NS
