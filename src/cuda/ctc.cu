// CTC losses and their gradients, one block per sample: the walk itself is detail/ctc.hpp's.
#include "index_check.hpp"
#include "launch.cuh"
#include "numeric.cuh"

#include <tensorlite/detail/ctc.hpp>

namespace tensorlite::cuda {
namespace {

constexpr int kMaxLanes = 256;

struct BlockLanes {
  template <class F> __device__ void each(std::int64_t count, const F& f) const {
    for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) f(i);
    __syncthreads();
  }
};

template <class T> struct CtcBatch {
  std::int64_t count, frames, width;
  detail::CtcSample<T> first;  ///< its pointers are those of sample 0
  std::int64_t score_stride, gradient_stride, scratch_stride;
  const std::int64_t *frame_counts, *label_counts;  ///< or null
  T* losses;
  bool zero_infinity;
  IndexCheck bounds;

  /// What is wrong with sample n: its frames (0), its number of labels (1), label i (2 + i), counted through the batch.
  __device__ std::int64_t position(std::int64_t n, std::int64_t what) const { return n * (width + 2) + what; }
  __device__ bool check_count(std::int64_t n, std::int64_t what, std::int64_t value, std::int64_t most) const {
    if (value >= 0 && value <= most) return true;
    if (threadIdx.x == 0) bounds.report(position(n, what), value);
    return false;
  }
  /// The sample; false when it makes no sense, in every thread.
  __device__ bool sample(std::int64_t n, detail::CtcSample<T>& s) const {
    s = first;
    s.scores += n * score_stride;
    s.target += n * width;
    if (s.gradient) s.gradient += n * gradient_stride;
    s.scratch += n * scratch_stride;
    s.frames = frame_counts ? frame_counts[n] : frames;
    s.labels = label_counts ? label_counts[n] : width;
    if (!check_count(n, 0, s.frames, frames) || !check_count(n, 1, s.labels, width)) return false;
    bool wrong = false;
    for (std::int64_t i = threadIdx.x; i < s.labels; i += blockDim.x) {
      const std::int64_t label = s.target[i];
      if (label >= 0 && label < s.classes && label != s.blank) continue;
      wrong = true;
      bounds.report(position(n, 2 + i), label);
    }
    return __syncthreads_or(wrong) == 0;
  }
};

template <class T> __global__ void __launch_bounds__(kMaxLanes) ctc_kernel(const __grid_constant__ CtcBatch<T> batch) {
  for (std::int64_t n = blockIdx.x; n < batch.count; n += gridDim.x) {
    detail::CtcSample<T> sample;
    double loss = ::nan("");
    if (batch.sample(n, sample)) loss = sample.run(BlockLanes{});
    if (threadIdx.x == 0) batch.losses[n] = static_cast<T>(batch.zero_infinity && loss == HUGE_VAL ? 0 : loss);
  }
}

/// numbers: frames, labels a sample, classes, the blank.
void raise(const IndexFailure& f) {
  const std::int64_t width = f.numbers[1], n = f.position / (width + 2), what = f.position % (width + 2);
  if (what == 0) detail::throw_ctc_length(f.op, "input", f.value, n, f.numbers[0]);
  if (what == 1) detail::throw_ctc_length(f.op, "target", f.value, n, width);
  detail::throw_ctc_label(f.op, f.value, what - 2, n, f.numbers[2], f.numbers[3]);
}

}  // namespace

void ctc_loss(const Context& context, const View& losses, const View& grad_scores, const View& scores, const View& targets,
              const View& input_lengths, const View& target_lengths, CtcParams params) {
  const std::int64_t frames = scores.size(0), count = scores.size(1), classes = scores.size(2), width = targets.size(1);
  if (count == 0) return;
  const IndexCheck bounds = check_values(context, &raise, {frames, width, classes, params.blank});
  const std::int64_t scratch = detail::CtcSample<float>::scratch_size(frames, width);
  const Workspace memory(context, static_cast<std::size_t>(count * scratch) * sizeof(double));
  const auto run = [&](auto type) {
    using T = typename decltype(type)::type;
    const detail::CtcSample<T> first{.scores = scores.ptr<T>(),
                                     .frame_stride = scores.stride(0),
                                     .frames = frames,
                                     .classes = classes,
                                     .target = targets.ptr<std::int64_t>(),
                                     .labels = width,
                                     .blank = params.blank,
                                     .gradient = grad_scores ? grad_scores.ptr<T>() : nullptr,
                                     .gradient_stride = grad_scores ? grad_scores.stride(0) : 0,
                                     .all_frames = frames,
                                     .logits = params.logits,
                                     .scratch = memory.data<double>()};
    const CtcBatch<T> batch{count,
                            frames,
                            width,
                            first,
                            scores.stride(1),
                            grad_scores ? grad_scores.stride(1) : 0,
                            scratch,
                            input_lengths ? input_lengths.ptr<std::int64_t>() : nullptr,
                            target_lengths ? target_lengths.ptr<std::int64_t>() : nullptr,
                            losses.ptr<T>(),
                            params.zero_infinity,
                            bounds};
    const std::int64_t work = std::max(2 * width + 1, classes);
    const int lanes = static_cast<int>(std::min<std::int64_t>(kMaxLanes, (work + 31) / 32 * 32));
    ctc_kernel<T><<<blocks_for(count, 1), lanes, 0, stream_of(context)>>>(batch);
    check_launch(context);
  };
  if (scores.dtype == DType::float64) run(Type<double>{});
  else run(Type<float>{});
}

}  // namespace tensorlite::cuda
