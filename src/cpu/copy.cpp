// copy, fill, arange, where. Transposed copies are in transpose.cpp.
#include "kernels.hpp"

#include "blocks.hpp"
#include "dispatch.hpp"
#include "move.hpp"
#include "transpose.hpp"

namespace tensorlite::cpu::TL_CPU_NS {
namespace {

void copy_same(const View& out, const View& in) {
  const Loop<2> loop = make_loop(out, in);
  if (copy_transposed(loop, out, in)) return;
  const Mover move = raw_mover(out.dtype);
  const std::int64_t size = size_of(out.dtype);
  parallel_runs(loop, kCheapGrain, [&](const auto& offsets, std::int64_t, std::int64_t count) {
    move(out.ptr<char>() + offsets[0] * size, loop.inner_stride(0), in.ptr<char>() + offsets[1] * size, loop.inner_stride(1), count);
  });
}

template <class To, class From> void convert_block(void* out_, const void* const* in, std::int64_t count, const void*) {
  To* out = static_cast<To*>(out_);
  const From* x = static_cast<const From*>(in[0]);
  for (std::int64_t i = 0; i < count; ++i) out[i] = elementwise::convert<To>(x[i]);
}

/// f(Type<T>) for the five compute types.
template <class F> BlockFunction for_compute_type(DType dtype, F f) {
  switch (compute_dtype(dtype)) {
    case DType::float32: return f(Type<float>{});
    case DType::float64: return f(Type<double>{});
    case DType::int32: return f(Type<std::int32_t>{});
    case DType::int64: return f(Type<std::int64_t>{});
    default: return f(Type<std::uint8_t>{});
  }
}

BlockFunction converter(DType to, DType from) {
  return for_compute_type(from, [&](auto from_tag) -> BlockFunction {
    using From = typename decltype(from_tag)::type;
    if (to == kBool) return &convert_block<bool, From>;
    return for_compute_type(to, [](auto to_tag) -> BlockFunction { return &convert_block<typename decltype(to_tag)::type, From>; });
  });
}

template <class T> void where_block(void* out_, const void* const* in, std::int64_t count, const void*) {
  const std::uint8_t* condition = static_cast<const std::uint8_t*>(in[0]);
  const T* a = static_cast<const T*>(in[1]);
  const T* b = static_cast<const T*>(in[2]);
  T* out = static_cast<T*>(out_);
  for (std::int64_t i = 0; i < count; ++i) out[i] = condition[i] ? a[i] : b[i];
}

}  // namespace

void copy(const Context&, const View& out, const View& in) {
  if (out.numel() == 0) return;
  if (out.dtype == in.dtype) return copy_same(out, in);
  const DType to = out.dtype == kBool ? kBool : compute_dtype(out.dtype);
  run_blocks(converter(out.dtype, in.dtype), nullptr, kCheapGrain, {{out, to}, {in, compute_dtype(in.dtype)}});
}

void fill(const Context& context, const View& out, Scalar value) {
  if (out.numel() == 0) return;
  dispatch_all(context.op, out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T element = value.as<T>();
    const View one(&element, out.dtype, out.device, out.sizes, Dims::filled(out.dim(), 0));
    copy_same(out, one);
  });
}

void arange(const Context& context, const View& out, Scalar start, Scalar step) {
  const bool exact = start.is_integer && step.is_integer && !is_floating(out.dtype);
  dispatch_all(context.op, out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* to = out.ptr<T>();
    parallel_for(out.numel(), kCheapGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        to[i] = exact ? elementwise::convert<T>(elementwise::add(start.integer, elementwise::multiply(i, step.integer)))
                      : elementwise::convert<T>(start.as<double>() + static_cast<double>(i) * step.as<double>());
    });
  });
}

void where(const Context& context, const View& out, const View& condition, const View& a, const View& b) {
  TL_CHECK(condition.dtype == kBool || condition.dtype == kUInt8, DTypeError, context.op, "the condition is ", condition.dtype,
           ", expected bool; compare it with 0");
  const BlockFunction f = dispatch_bits(out.dtype, [](auto tag) -> BlockFunction { return &where_block<typename decltype(tag)::type>; });
  run_blocks(f, nullptr, kCheapGrain, {{out, out.dtype}, {condition, kUInt8}, {a, out.dtype}, {b, out.dtype}});
}

}  // namespace tensorlite::cpu::TL_CPU_NS
