// Connectionist temporal classification of one sample, in log space and float64, written once for CPU and GPU.
// Source: Graves et al., "Connectionist Temporal Classification", ICML 2006, equations 6-16.
//
// Lanes is who does the work: lanes.each(n, f) calls f(i) for every i in [0, n), in any order, and returns when all are done.
#pragma once

#include <tensorlite/base.hpp>

#include <cmath>

namespace tensorlite::detail {

/// log(exp(a) + exp(b) + exp(c)); a NaN stays one.
TL_HOST_DEVICE inline double log_add(double a, double b, double c = -HUGE_VAL) {
  double high = a, middle = b, low = c;
  if (middle > high) high = b, middle = a;
  if (low > high) low = high, high = c;
  return high == -HUGE_VAL ? middle + low : high + ::log(1 + ::exp(middle - high) + ::exp(low - high));
}

[[noreturn]] inline void throw_ctc_length(const char* op, const char* what, std::int64_t length, std::int64_t sample, std::int64_t most) {
  throw ValueError(op, concat(what, " length ", length, " of sample ", sample, " is outside 0..", most));
}
[[noreturn]] inline void throw_ctc_label(const char* op, std::int64_t label, std::int64_t position, std::int64_t sample,
                                         std::int64_t classes, std::int64_t blank) {
  throw IndexError(op, concat("label ", label, " at position ", position, " of sample ", sample,
                              label == blank ? " is the blank" : " is outside the classes", "; labels are 0..", classes - 1,
                              " without the blank ", blank));
}

/// The target with a blank before, between and after its labels: positions 0 .. 2 * labels. Alignments walk through them, one frame a step,
/// staying, going to the next or, where two neighbouring labels differ, skipping the blank between.
template <class T> struct CtcSample {
  const T* scores;  ///< log-probabilities [frames, classes]
  std::int64_t frame_stride, frames, classes;
  const std::int64_t* target;
  std::int64_t labels, blank;
  T* gradient;  ///< [all_frames, classes]; null: not wanted
  std::int64_t gradient_stride, all_frames;
  bool logits;      ///< see CtcParams
  double* scratch;  ///< scratch_size() of them

  TL_HOST_DEVICE static std::int64_t scratch_size(std::int64_t frames, std::int64_t labels) { return (frames + 5) * (2 * labels + 1); }

  /// The loss, -log of the sum of all alignments' probabilities; infinite when there is none.
  template <class Lanes> TL_HOST_DEVICE double run(const Lanes& lanes) const {
    if (frames == 0) {
      if (gradient) clear(lanes, 0);
      return labels == 0 ? 0 : HUGE_VAL;
    }
    const double loss = forward(lanes);
    if (!gradient) return loss;
    clear(lanes, loss == HUGE_VAL ? 0 : frames);
    if (loss != HUGE_VAL) backward(lanes, loss);
    return loss;
  }

 private:
  TL_HOST_DEVICE std::int64_t positions() const { return 2 * labels + 1; }
  TL_HOST_DEVICE std::int64_t label(std::int64_t s) const { return s % 2 ? target[s / 2] : blank; }
  TL_HOST_DEVICE double score(std::int64_t frame, std::int64_t s) const {
    return static_cast<double>(scores[frame * frame_stride + label(s)]);
  }
  /// Whether an alignment may come to position s from s - 2.
  TL_HOST_DEVICE bool skips(std::int64_t s) const { return s % 2 && s >= 3 && target[s / 2] != target[s / 2 - 1]; }

  // Scratch rows: alpha of every frame (of the last two when there is no gradient), then occupancies, beta of two frames, links.
  TL_HOST_DEVICE double* alpha(std::int64_t frame) const { return scratch + (gradient ? frame : frame % 2) * positions(); }
  TL_HOST_DEVICE double* row(std::int64_t i) const { return scratch + (frames + i) * positions(); }
  TL_HOST_DEVICE double* beta(std::int64_t frame) const { return row(1 + frame % 2); }

  template <class Lanes> TL_HOST_DEVICE double forward(const Lanes& lanes) const {
    lanes.each(positions(), [&](std::int64_t s) { alpha(0)[s] = s < 2 ? score(0, s) : -HUGE_VAL; });
    for (std::int64_t t = 1; t < frames; ++t) {
      const double* before = alpha(t - 1);
      lanes.each(positions(), [&](std::int64_t s) {
        const double sum = log_add(before[s], s >= 1 ? before[s - 1] : -HUGE_VAL, skips(s) ? before[s - 2] : -HUGE_VAL);
        alpha(t)[s] = sum + score(t, s);
      });
    }
    const double *last = alpha(frames - 1), end = last[positions() - 1];
    return -(labels > 0 ? log_add(end, last[positions() - 2]) : end);
  }

  /// Gradient 0 from this frame on.
  template <class Lanes> TL_HOST_DEVICE void clear(const Lanes& lanes, std::int64_t first) const {
    lanes.each((all_frames - first) * classes,
               [&](std::int64_t i) { gradient[(first + i / classes) * gradient_stride + i % classes] = T(0); });
  }

  /// Links the positions of one label: next[s] is the following one or 0, head[s] whether s is the first.
  template <class Lanes> TL_HOST_DEVICE void link(const Lanes& lanes, double* next, double* head) const {
    lanes.each(positions(), [&](std::int64_t s) {
      std::int64_t after = s + 2, before = s - 2;
      while (after < positions() && label(after) != label(s)) after += 2;
      while (before >= 0 && label(before) != label(s)) before -= 2;
      next[s] = after < positions() ? static_cast<double>(after) : 0;
      head[s] = before < 0;
    });
  }

  template <class Lanes> TL_HOST_DEVICE void backward(const Lanes& lanes, double loss) const {
    double *occupancy = row(0), *next = row(3), *head = row(4);
    link(lanes, next, head);
    for (std::int64_t t = frames - 1; t >= 0; --t) {
      const double* after = beta(t + 1);
      T* to = gradient + t * gradient_stride;
      const auto rest = [&](std::int64_t s) {  // log-probability of what follows after being at s in this frame
        if (t == frames - 1) return s + 2 >= positions() ? 0 : -HUGE_VAL;
        return log_add(after[s] + score(t + 1, s), s + 1 < positions() ? after[s + 1] + score(t + 1, s + 1) : -HUGE_VAL,
                       s + 2 < positions() && skips(s + 2) ? after[s + 2] + score(t + 1, s + 2) : -HUGE_VAL);
      };
      const std::int64_t work = positions() > classes ? positions() : classes;
      lanes.each(work, [&](std::int64_t i) {
        if (i < positions()) {
          beta(t)[i] = rest(i);
          occupancy[i] = ::exp(alpha(t)[i] + beta(t)[i] + loss);
        }
        if (i < classes) to[i] = logits ? static_cast<T>(::exp(static_cast<double>(scores[t * frame_stride + i]))) : T(0);
      });
      lanes.each(positions(), [&](std::int64_t s) {
        if (head[s] == 0) return;
        double sum = occupancy[s];
        for (double at = next[s]; at != 0; at = next[static_cast<std::int64_t>(at)]) sum += occupancy[static_cast<std::int64_t>(at)];
        to[label(s)] = static_cast<T>(static_cast<double>(to[label(s)]) - sum);
      });
    }
  }
};

}  // namespace tensorlite::detail
