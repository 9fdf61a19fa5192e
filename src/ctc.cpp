// Out-of-line part of ops/ctc.hpp.
#include <tensorlite/ops/ctc.hpp>

#include <tensorlite/detail/ctc.hpp>

#include <map>

namespace tensorlite {
namespace {

Tensor dense(const Tensor& x) {
  NoGradGuard guard;
  return x.detach().contiguous();
}
View view_of(const Tensor& t) { return t.defined() ? t.raw() : View(); }

void check_lengths(const char* op, const char* what, const Tensor& lengths, std::int64_t batch) {
  if (!lengths.defined()) return;
  TL_CHECK(lengths.sizes() == Dims({batch}), ShapeError, op, what, " have shape ", lengths.sizes(), ", expected ", Dims{batch});
}

void check_scores(const char* op, const Tensor& scores, std::int64_t blank) {
  TL_CHECK(scores.dim() == 3, ShapeError, op, "scores must be [frames, N, classes], they have shape ", scores.sizes());
  TL_CHECK(is_floating(scores.dtype()), DTypeError, op, "scores must be floating, they are ", scores.dtype());
  TL_CHECK(blank >= 0 && blank < scores.size(2), ValueError, op, "the blank ", blank, " is outside the classes 0..", scores.size(2) - 1);
}

struct CtcResult {
  Tensor losses, gradient;
};

/// Losses per sample and, when wanted, their gradients. `scores` are log-probabilities.
CtcResult ctc_forward(const Tensor& scores, const Tensor& targets, const Tensor& input_lengths, const Tensor& target_lengths,
                      CtcParams params, bool with_gradient) {
  const detail::Placed<2> in("CTCLoss", scores, targets);
  const Tensor from = dense(in[0]), labels = dense(in[1]);
  const auto lengths = [&](const Tensor& t) { return t.defined() ? dense(detail::as_index("ctc_loss", t).to(in.device)) : t; };
  const Tensor frames = lengths(input_lengths), counts = lengths(target_lengths);
  CtcResult r{detail::make_tensor({scores.size(1)}, scores.dtype(), in.device),
              with_gradient ? detail::make_tensor(scores.sizes(), scores.dtype(), in.device) : Tensor()};
  TL_CALL(in, ctc_loss, r.losses.raw(), view_of(r.gradient), from.raw(), labels.raw(), view_of(frames), view_of(counts), params);
  return r;
}

Tensor reduce(const Tensor& losses, const Tensor& target_lengths, std::int64_t width, const CtcLossOptions& options) {
  if (options.reduction != Reduction::mean || options.mean_over == CtcMean::batch) return detail::reduce_loss(losses, options.reduction);
  if (!target_lengths.defined()) return mean(losses) / static_cast<double>(std::max<std::int64_t>(width, 1));
  const Tensor counts = target_lengths.to(losses.device());
  return mean(losses / masked_fill(counts, counts == 0, 1).to(losses.dtype()));
}

Tensor ctc_loss_of(const char* op, const Tensor& input, bool logits, const Tensor& targets, const Tensor& input_lengths,
                   const Tensor& target_lengths, const CtcLossOptions& options) {
  check_scores(op, input, options.blank);
  TL_CHECK(targets.dim() == 2 && targets.size(0) == input.size(1), ShapeError, op, "targets must be [", input.size(1),
           ", labels], they have shape ", targets.sizes());
  check_lengths(op, "input lengths", input_lengths, input.size(1));
  check_lengths(op, "target lengths", target_lengths, input.size(1));
  const Tensor scores = is_half(input.dtype()) ? input.to(kFloat32) : input;
  const detail::TensorRef inputs[] = {scores};
  const CtcParams params{options.blank, logits, options.zero_infinity};
  const CtcResult r = ctc_forward(logits ? detail::softmax_forward(scores, 2, true) : scores, detail::as_index(op, targets), input_lengths,
                                  target_lengths, params, detail::must_record("CTCLoss", inputs));
  const Tensor losses = detail::record("CTCLoss", r.losses, {scores}, {r.gradient}, [](const BackwardContext& c, const Tensor& g) {
    TL_CHECK(!c.recording(), AutogradError, "CTCLoss", "its gradient cannot be recorded (create_graph): it has no gradient of its own");
    return Gradients{c.saved(0) * reshape(g, {1, g.numel(), 1})};
  });
  return reduce(losses, target_lengths, targets.size(1), options);
}

/// Frames of each sample, checked, on the host.
std::vector<std::int64_t> host_lengths(const char* op, const Tensor& lengths, std::int64_t batch, std::int64_t frames) {
  if (!lengths.defined()) return std::vector<std::int64_t>(static_cast<std::size_t>(batch), frames);
  check_lengths(op, "lengths", lengths, batch);
  const std::vector<std::int64_t> all = detail::as_index(op, lengths).cpu().to_vector<std::int64_t>();
  for (std::size_t n = 0; n < all.size(); ++n)
    TL_CHECK(all[n] >= 0 && all[n] <= frames, ValueError, op, "length ", all[n], " of sample ", n, " is outside 0..", frames);
  return all;
}

// ----------------------------------------------------------------------------------------------------------------- beam search

/// Log-probabilities of a label sequence's alignments so far, by whether they end in a blank.
struct Beam {
  double blank = -HUGE_VAL, label = -HUGE_VAL;
  double total() const { return detail::log_add(blank, label); }
};
using Beams = std::map<Labels, Beam>;

void add(double& to, double log_probability) { to = detail::log_add(to, log_probability); }

/// All that the sequences may become in a frame with these log-probabilities.
Beams extend(const Beams& beams, const double* frame, std::int64_t classes, std::int64_t blank) {
  Beams next;
  for (const auto& [labels, beam] : beams) {
    Beam& same = next[labels];
    add(same.blank, beam.total() + frame[blank]);
    if (!labels.empty()) add(same.label, beam.label + frame[labels.back()]);
    Labels longer = labels;
    longer.push_back(0);
    for (std::int64_t c = 0; c < classes; ++c) {
      if (c == blank || frame[c] == -HUGE_VAL) continue;
      longer.back() = c;
      const bool repeats = !labels.empty() && labels.back() == c;  // a repeated label is a new one only after a blank
      add(next[longer].label, (repeats ? beam.blank : beam.total()) + frame[c]);
    }
  }
  return next;
}

/// The best `count`, best first; equal ones in the order of their labels.
std::vector<CtcHypothesis> best_of(const Beams& beams, std::int64_t count) {
  std::vector<CtcHypothesis> all;
  for (const auto& [labels, beam] : beams)
    if (beam.total() > -HUGE_VAL) all.push_back({labels, beam.total()});
  const auto keep = static_cast<std::ptrdiff_t>(std::min<std::size_t>(all.size(), static_cast<std::size_t>(count)));
  std::partial_sort(all.begin(), all.begin() + keep, all.end(), [](const CtcHypothesis& a, const CtcHypothesis& b) {
    return a.log_probability != b.log_probability ? a.log_probability > b.log_probability : a.labels < b.labels;
  });
  all.resize(static_cast<std::size_t>(keep));
  return all;
}

}  // namespace

Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths, const Tensor& target_lengths,
                const CtcLossOptions& options) {
  return ctc_loss_of("ctc_loss", log_probs, false, targets, input_lengths, target_lengths, options);
}
Tensor ctc_loss_with_logits(const Tensor& logits, const Tensor& targets, const Tensor& input_lengths, const Tensor& target_lengths,
                            const CtcLossOptions& options) {
  return ctc_loss_of("ctc_loss_with_logits", logits, true, targets, input_lengths, target_lengths, options);
}

std::vector<Labels> ctc_collapse(const Tensor& path, const CtcDecodeOptions& options) {
  const char* op = "ctc_collapse";
  TL_CHECK(path.dim() == 2, ShapeError, op, "the path must be [frames, N], it has shape ", path.sizes());
  const auto frames = static_cast<std::size_t>(path.size(0)), batch = static_cast<std::size_t>(path.size(1));
  const std::vector<std::int64_t> classes = detail::as_index(op, path).cpu().to_vector<std::int64_t>();
  const std::vector<std::int64_t> lengths = host_lengths(op, options.lengths, path.size(1), path.size(0));
  std::vector<Labels> all(batch);
  for (std::size_t n = 0; n < batch; ++n) {
    std::int64_t before = options.blank;
    for (std::size_t t = 0; t < frames && t < static_cast<std::size_t>(lengths[n]); ++t) {
      const std::int64_t c = classes[t * batch + n];
      if (c != before && c != options.blank) all[n].push_back(c);
      before = c;
    }
  }
  return all;
}

std::vector<Labels> ctc_greedy_decode(const Tensor& scores, const CtcDecodeOptions& options) {
  check_scores("ctc_greedy_decode", scores, options.blank);
  return ctc_collapse(argmax(scores.detach(), 2), options);
}

std::vector<std::vector<CtcHypothesis>> ctc_beam_search_decode(const Tensor& log_probs, const CtcBeamOptions& options) {
  const char* op = "ctc_beam_search_decode";
  check_scores(op, log_probs, options.blank);
  TL_CHECK(options.beam_width > 0 && options.results > 0, ValueError, op, "beam_width and results must be positive, they are ",
           options.beam_width, " and ", options.results);
  const std::int64_t frames = log_probs.size(0), batch = log_probs.size(1), classes = log_probs.size(2);
  const std::vector<std::int64_t> lengths = host_lengths(op, options.lengths, batch, frames);
  const std::vector<double> scores = log_probs.detach().cpu().to(kFloat64).to_vector<double>();
  std::vector<std::vector<CtcHypothesis>> all;
  for (std::int64_t n = 0; n < batch; ++n) {
    Beams beams{{Labels(), Beam{.blank = 0}}};
    for (std::int64_t t = 0; t < lengths[static_cast<std::size_t>(n)]; ++t) {
      const Beams extended = extend(beams, scores.data() + (t * batch + n) * classes, classes, options.blank);
      beams.clear();
      for (const CtcHypothesis& h : best_of(extended, options.beam_width)) beams.emplace(h.labels, extended.at(h.labels));
    }
    all.push_back(best_of(beams, options.results));
  }
  return all;
}

}  // namespace tensorlite
