// CTC losses and their gradients, the samples of a batch in parallel.
#include "dispatch.hpp"
#include "kernels.hpp"

#include <tensorlite/detail/ctc.hpp>

#include <vector>

namespace tensorlite::cpu::TL_CPU_NS {
namespace {

struct OneLane {
  template <class F> void each(std::int64_t count, F&& f) const {
    for (std::int64_t i = 0; i < count; ++i) f(i);
  }
};

std::int64_t length_of(const View& lengths, std::int64_t n, std::int64_t all) { return lengths ? lengths.ptr<std::int64_t>()[n] : all; }

void check_lengths(const Context& context, const char* what, const View& lengths, std::int64_t most) {
  if (!lengths) return;
  for (std::int64_t n = 0; n < lengths.numel(); ++n) {
    const std::int64_t length = lengths.ptr<std::int64_t>()[n];
    if (length < 0 || length > most) tensorlite::detail::throw_ctc_length(context.op, what, length, n, most);
  }
}

void check_labels(const Context& context, const View& targets, const View& target_lengths, std::int64_t classes, std::int64_t blank) {
  const std::int64_t width = targets.size(1);
  for (std::int64_t n = 0; n < targets.size(0); ++n)
    for (std::int64_t i = 0; i < length_of(target_lengths, n, width); ++i) {
      const std::int64_t label = targets.ptr<std::int64_t>()[n * width + i];
      if (label < 0 || label >= classes || label == blank) tensorlite::detail::throw_ctc_label(context.op, label, i, n, classes, blank);
    }
}

template <class T>
void losses_of(const View& losses, const View& grad_scores, const View& scores, const View& targets, const View& input_lengths,
               const View& target_lengths, CtcParams params) {
  const std::int64_t frames = scores.size(0), batch = scores.size(1), width = targets.size(1);
  parallel_for(batch, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> scratch(static_cast<std::size_t>(tensorlite::detail::CtcSample<T>::scratch_size(frames, width)));
    for (std::int64_t n = begin; n < end; ++n) {
      const tensorlite::detail::CtcSample<T> sample{.scores = scores.ptr<T>() + n * scores.stride(1),
                                                    .frame_stride = scores.stride(0),
                                                    .frames = length_of(input_lengths, n, frames),
                                                    .classes = scores.size(2),
                                                    .target = targets.ptr<std::int64_t>() + n * width,
                                                    .labels = length_of(target_lengths, n, width),
                                                    .blank = params.blank,
                                                    .gradient = grad_scores ? grad_scores.ptr<T>() + n * grad_scores.stride(1) : nullptr,
                                                    .gradient_stride = grad_scores ? grad_scores.stride(0) : 0,
                                                    .all_frames = frames,
                                                    .logits = params.logits,
                                                    .scratch = scratch.data()};
      const double loss = sample.run(OneLane{});
      losses.ptr<T>()[n] = static_cast<T>(params.zero_infinity && loss == HUGE_VAL ? 0 : loss);
    }
  });
}

}  // namespace

void ctc_loss(const Context& context, const View& losses, const View& grad_scores, const View& scores, const View& targets,
              const View& input_lengths, const View& target_lengths, CtcParams params) {
  check_lengths(context, "input", input_lengths, scores.size(0));
  check_lengths(context, "target", target_lengths, targets.size(1));
  check_labels(context, targets, target_lengths, scores.size(2), params.blank);
  if (scores.dtype == DType::float64) losses_of<double>(losses, grad_scores, scores, targets, input_lengths, target_lengths, params);
  else losses_of<float>(losses, grad_scores, scores, targets, input_lengths, target_lengths, params);
}

}  // namespace tensorlite::cpu::TL_CPU_NS
