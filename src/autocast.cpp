// Mixed precision: the scope and the casts of parameters. The thread's pointer to the scope is kept with its other state in runtime.cpp.
#include <tensorlite/autocast.hpp>

#include <algorithm>

namespace tensorlite {

Autocast::Autocast(DType dtype) : outer_(detail::thread_state().autocast) {
  TL_CHECK(is_half(dtype), DTypeError, "Autocast", "the dtype must be bfloat16 or float16, it is ", dtype);
  state_.dtype = dtype;
  detail::thread_state().autocast = &state_;
}
Autocast::Autocast(std::nullopt_t) : outer_(detail::thread_state().autocast) { detail::thread_state().autocast = nullptr; }
Autocast::~Autocast() { detail::thread_state().autocast = outer_; }

std::optional<DType> autocast_dtype() {
  const detail::AutocastState* state = detail::thread_state().autocast;
  return state ? std::optional(state->dtype) : std::nullopt;
}

namespace detail {

AutocastOff::AutocastOff() : outer_(std::exchange(thread_state().autocast, nullptr)) {
  if (outer_) outer_->casts.clear();  // backward releases their records
}

Tensor lowered(const Tensor& x) {
  AutocastState& state = *thread_state().autocast;
  if (!is_lowered(x)) return x;
  const bool kept = is_grad_enabled() && x.requires_grad() && x.is_leaf();
  if (!kept) return x.to(state.dtype);
  const std::uint32_t version = x.impl()->storage->version.load(std::memory_order_relaxed);
  const auto found =
      std::find_if(state.casts.begin(), state.casts.end(), [&](const AutocastState::Cast& c) { return c.source.impl() == x.impl(); });
  if (found != state.casts.end() && found->version == version) return found->cast;
  const Tensor cast = x.to(state.dtype);
  if (found != state.casts.end()) *found = {x, cast, version};
  else state.casts.push_back({x, cast, version});
  return cast;
}

}  // namespace detail
}  // namespace tensorlite
