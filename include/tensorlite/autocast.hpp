// L2: automatic mixed precision: products and convolutions in a half type, parameters and everything delicate in float32.
#pragma once

#include <tensorlite/autograd.hpp>

namespace tensorlite {

namespace detail {

/// What an Autocast holds; the thread's state points to the innermost one.
struct AutocastState {
  struct Cast {
    Tensor source, cast;
    std::uint32_t version;  ///< of the source when it was cast
  };
  DType dtype = kBFloat16;
  std::vector<Cast> casts;  ///< of parameters, made once per step
};

template <class T> bool is_lowered(const T& x) { return x.defined() && x.dtype() == kFloat32; }
template <class T> bool may_be_lowered(const T& x) { return !x.defined() || x.dtype() == kFloat32 || is_half(x.dtype()); }
/// Do the operands of a product go to the half type first?
template <class... T> bool lowers(const T&... operands) {
  if (!thread_state().autocast) [[likely]]
    return false;
  return (may_be_lowered(operands) && ...) && (is_lowered(operands) || ...);
}
/// The operand in the half type. Casts of parameters are kept until they change or a backward has run.
TL_API Tensor lowered(const Tensor& x);

/// Does an op that wants float32 get a half tensor?
inline bool raises(const Tensor& x) { return thread_state().autocast && x.defined() && is_half(x.dtype()); }
inline Tensor raised(const Tensor& x) { return raises(x) ? x.to(kFloat32) : x; }

/// No Autocast while it lives: gradients are computed in the types of their ops, whichever scope backward() is called in.
class AutocastOff {
 public:
  TL_API AutocastOff();
  ~AutocastOff() { thread_state().autocast = outer_; }
  AutocastOff(const AutocastOff&) = delete;
  AutocastOff& operator=(const AutocastOff&) = delete;

 private:
  AutocastState* outer_;
};

}  // namespace detail

/// Mixed precision while it lives, for this thread; nests, the innermost counts; restored by unwinding.
///   for (auto& [images, labels] : loader) {
///     {
///       tl::Autocast autocast;                                   // bfloat16
///       loss = tl::cross_entropy(net(images), labels);
///     }
///     loss.backward();
///     optimizer.step();
///   }
/// float32 operands of matmul, linear, conv2d and conv_transpose2d are converted to the half type, and so are the results; float64 and
/// integers stay. Sums, means, products, variances, norms, cumsum, softmax, layer_norm and the losses take half tensors in float32 and give
/// float32; batch_norm computes in float32 and keeps its input's type. All other ops follow their inputs. Parameters stay float32, so do
/// their gradients and the optimizer; a parameter is converted once per step. With float16 small gradients vanish: scale the loss.
/// Throws DTypeError unless dtype is bfloat16 or float16.
class TL_API Autocast {
 public:
  explicit Autocast(DType dtype = kBFloat16);
  /// Full precision again, inside another.
  explicit Autocast(std::nullopt_t);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  detail::AutocastState state_, *outer_;
};

/// The half type of the innermost Autocast of this thread; none: full precision.
TL_API std::optional<DType> autocast_dtype();

}  // namespace tensorlite
