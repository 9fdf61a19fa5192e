// reduce: every chunk of every tile gives a partial result, partial results are merged in order, the last value is stored.
#include "reduce.hpp"

#include "kernels.hpp"
#include "reduce_steps.hpp"

#include <cmath>

namespace tensorlite::cpu::TL_CPU_NS {
namespace {

using namespace reduce_ops;

/// One reduction of T. `second`, when there is one, reduces around a center taken from the first step's result; `correct` (var) finds
/// how far that center is from the mean, which a sum in T alone does not tell well enough.
template <class T> struct Recipe {
  ReduceOp op;
  ReduceStep<T> first = nullptr, second = nullptr, correct = nullptr;
  std::int64_t total = 1;  ///< elements per output
  double correction = 0;
};

/// Partial results of a tile over `count` reduced elements. Two-step reductions: var {mean, sum of squared deviations}, logsumexp
/// {largest, sum of exp(x - largest)}.
template <class Acc> struct Partial {
  Acc* first;
  Acc* second;
  std::int64_t count;
};

template <class T>
void run_steps(const Recipe<T>& recipe, const ReducePlan& plan, const Source<T>& source, const ReduceTile& tile, std::int64_t chunk,
               Partial<AccType<T>>& part) {
  using Acc = AccType<T>;
  const std::int64_t begin = chunk * plan.chunk, end = std::min(begin + plan.chunk, plan.reduced.numel);
  const Acc n = static_cast<Acc>(part.count = end - begin);
  recipe.first(plan, source, tile, begin, end, nullptr, part.first);
  if (!recipe.second) return;
  T centers[kReduceTile];
  for (std::int64_t j = 0; j < tile.count; ++j) {
    const Acc center = recipe.correct ? part.first[j] / n : part.first[j];
    centers[j] = recipe.correct || std::abs(center) <= std::numeric_limits<T>::max() ? static_cast<T>(center) : T(0);
  }
  recipe.second(plan, source, tile, begin, end, centers, part.second);
  if (!recipe.correct) return;
  recipe.correct(plan, source, tile, begin, end, centers, part.first);
  for (std::int64_t j = 0; j < tile.count; ++j) {
    const Acc off = part.first[j] / n;
    part.first[j] = static_cast<Acc>(centers[j]) + off;
    const Acc squares = part.second[j] - n * off * off;
    part.second[j] = squares < 0 ? Acc(0) : squares;
  }
}

void merge_moments(double& mean, double& squares, double n, double other_mean, double other_squares, double other_n) {
  const double off = other_mean - mean;
  mean += off * (other_n / (n + other_n));
  squares += other_squares + off * off * (n * other_n / (n + other_n));
}

void merge_exponentials(double& largest, double& sum, double other_largest, double other_sum) {
  const double a = std::isfinite(largest) ? largest : 0, b = std::isfinite(other_largest) ? other_largest : 0;
  largest = Max::combine(largest, other_largest);
  const double center = std::isfinite(largest) ? largest : 0;
  sum = (sum == 0 ? 0 : sum * std::exp(a - center)) + (other_sum == 0 ? 0 : other_sum * std::exp(b - center));
}

/// into: the chunks before; part: the next one.
template <class Acc> void merge(ReduceOp op, std::int64_t n, Partial<Acc>& into, const Partial<Acc>& part) {
  auto each = [&](auto combine) {
    for (std::int64_t j = 0; j < n; ++j) into.first[j] = combine(into.first[j], part.first[j]);
  };
  switch (op) {
    case ReduceOp::prod: each([](Acc a, Acc b) { return a * b; }); break;
    case ReduceOp::max:
    case ReduceOp::any: each([](Acc a, Acc b) { return Max::combine(a, b); }); break;
    case ReduceOp::min:
    case ReduceOp::all: each([](Acc a, Acc b) { return Min::combine(a, b); }); break;
    case ReduceOp::var:
      for (std::int64_t j = 0; j < n; ++j)
        if constexpr (std::is_same_v<Acc, double>)
          merge_moments(into.first[j], into.second[j], static_cast<double>(into.count), part.first[j], part.second[j],
                        static_cast<double>(part.count));
      break;
    case ReduceOp::logsumexp:
      for (std::int64_t j = 0; j < n; ++j)
        if constexpr (std::is_same_v<Acc, double>) merge_exponentials(into.first[j], into.second[j], part.first[j], part.second[j]);
      break;
    default: each([](Acc a, Acc b) { return a + b; });
  }
  into.count += part.count;
}

/// Runs the recipe and hands every tile's result to finish(tile, partial), in parallel. Few tiles of many chunks are spread chunk by
/// chunk; the order in which partial results are merged is the same.
template <class T, class Finish>
void run_reduction(const Context& context, const Recipe<T>& recipe, const ReducePlan& plan, const Source<T>& source, Finish&& finish) {
  using Acc = AccType<T>;
  const std::int64_t cost = plan.tile * std::min(plan.chunk, plan.reduced.numel),
                     grain = std::max<std::int64_t>(1, kReduceChunk / 2 / cost);
  const bool spread = plan.chunks > 1 && plan.tiles < 4 * num_threads() && num_threads() > 1;
  const std::int64_t stride = 2 * plan.tile;
  Workspace partials(context, spread ? static_cast<std::size_t>(plan.tiles * plan.chunks * stride) * sizeof(Acc) : 0);
  auto partial_at = [&](std::int64_t item) {
    Acc* first = partials.template data<Acc>() + item * stride;
    const std::int64_t begin = item % plan.chunks * plan.chunk;
    return Partial<Acc>{first, first + plan.tile, std::min(plan.chunk, plan.reduced.numel - begin)};
  };
  if (spread) {
    parallel_for(plan.tiles * plan.chunks, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t item = begin; item < end; ++item) {
        Partial<Acc> part = partial_at(item);
        run_steps(recipe, plan, source, tile_at(plan, item / plan.chunks), item % plan.chunks, part);
      }
    });
  }
  parallel_for(plan.tiles, spread ? plan.tiles : std::max<std::int64_t>(1, grain / plan.chunks), [&](std::int64_t begin, std::int64_t end) {
    Acc buffers[4][kReduceTile];
    for (std::int64_t t = begin; t < end; ++t) {
      const ReduceTile tile = tile_at(plan, t);
      Partial<Acc> whole{buffers[0], buffers[1], 0}, part{buffers[2], buffers[3], 0};
      for (std::int64_t chunk = 0; chunk < plan.chunks; ++chunk) {
        Partial<Acc>& next = chunk == 0 ? whole : part;
        if (spread) next = partial_at(t * plan.chunks + chunk);
        else run_steps(recipe, plan, source, tile, chunk, next);
        if (chunk > 0) merge(recipe.op, tile.count, whole, part);
      }
      finish(tile, whole);
    }
  });
}

template <class T> void finish_values(const Recipe<T>& recipe, std::int64_t n, const Partial<double>& p) {
  const auto total = static_cast<double>(recipe.total);
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  for (std::int64_t j = 0; j < n; ++j) switch (recipe.op) {
      case ReduceOp::mean: p.first[j] /= total; break;
      case ReduceOp::norm2: p.first[j] = std::sqrt(p.first[j]); break;
      case ReduceOp::var: p.first[j] = total > recipe.correction ? p.second[j] / (total - recipe.correction) : kNaN; break;
      case ReduceOp::logsumexp: p.first[j] = (std::isfinite(p.first[j]) ? p.first[j] : 0) + std::log(p.second[j]); break;
      default: return;
    }
}

template <class T> Recipe<T> floating_recipe(const Context& context, ReduceOp op, const ReducePlan& plan) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::mean: return {op, reduce_step<T, Sum>(plan)};
    case ReduceOp::max: return {op, reduce_step<T, Max>(plan)};
    case ReduceOp::min: return {op, reduce_step<T, Min>(plan)};
    case ReduceOp::norm2: return {op, reduce_step<T, SumOfSquares>(plan)};
    case ReduceOp::var:
      return {op, reduce_step<T, Sum>(plan), reduce_step<T, SumOfSquaredDeviations>(plan), reduce_step<T, SumOfDeviations>(plan)};
    case ReduceOp::logsumexp: return {op, reduce_step<T, Max>(plan), reduce_step<T, SumOfExponentials>(plan)};
    default:
      if constexpr (std::is_same_v<T, double>) return {op, reduce_step<T, Product>(plan)};
      throw DTypeError(context.op, "no such reduction in float32");
  }
}

template <class T>
void reduce_floating(const Context& context, ReduceOp op, const View& out, const View& in, std::uint32_t axes, double correction) {
  const ReducePlan plan = make_reduce_plan(out, in, axes);
  Recipe<T> recipe = floating_recipe<T>(context, op, plan);
  recipe.total = plan.reduced.numel;
  recipe.correction = correction;
  const Sink<double> sink(out);
  run_reduction<T>(context, recipe, plan, Source<T>(in), [&](const ReduceTile& tile, const Partial<double>& p) {
    finish_values(recipe, tile.count, p);
    sink.store(tile.out_offset, tile.out_stride, p.first, tile.count);
  });
}

/// sum, prod, max, min of integers; mean of integers; any and all of every dtype (on 0 and 1).
void reduce_integers(const Context& context, ReduceOp op, const View& out, const View& in, std::uint32_t axes) {
  using T = std::int64_t;
  const ReducePlan plan = make_reduce_plan(out, in, axes);
  Recipe<T> recipe{op};
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::mean: recipe.first = reduce_step<T, Sum>(plan); break;
    case ReduceOp::prod: recipe.first = reduce_step<T, Product>(plan); break;
    case ReduceOp::max:
    case ReduceOp::any: recipe.first = reduce_step<T, Max>(plan); break;
    case ReduceOp::min:
    case ReduceOp::all: recipe.first = reduce_step<T, Min>(plan); break;
    default:
      throw DTypeError(context.op,
                       tensorlite::detail::concat("got ", in.dtype, ", expected a floating-point dtype; convert the tensor with to()"));
  }
  const Source<T> source = op == ReduceOp::any || op == ReduceOp::all ? Source<T>::truth(in) : Source<T>(in);
  const Sink<T> sink(out);
  const Sink<double> mean_sink(out);
  run_reduction<T>(context, recipe, plan, source, [&](const ReduceTile& tile, const Partial<T>& p) {
    if (op != ReduceOp::mean) return sink.store(tile.out_offset, tile.out_stride, p.first, tile.count);
    double means[kReduceTile];
    for (std::int64_t j = 0; j < tile.count; ++j) means[j] = static_cast<double>(p.first[j]) / static_cast<double>(plan.reduced.numel);
    mean_sink.store(tile.out_offset, tile.out_stride, means, tile.count);
  });
}

/// The value of a reduction over no elements.
double empty_result(ReduceOp op) {
  switch (op) {
    case ReduceOp::prod:
    case ReduceOp::all: return 1;
    case ReduceOp::mean:
    case ReduceOp::var: return std::numeric_limits<double>::quiet_NaN();
    case ReduceOp::max:
    case ReduceOp::logsumexp: return -std::numeric_limits<double>::infinity();
    case ReduceOp::min: return std::numeric_limits<double>::infinity();
    default: return 0;
  }
}

}  // namespace

void reduce(const Context& context, ReduceOp op, const View& out, const View& in, std::uint32_t axes, double correction) {
  if (out.numel() == 0) return;
  if (in.numel() == 0) {
    const double value = empty_result(op);
    const Sink<double> sink(out);
    for (std::int64_t i = 0; i < out.numel(); ++i) sink.store(i, 1, &value, 1);
    return;
  }
  if (!is_floating(in.dtype) || op == ReduceOp::any || op == ReduceOp::all) return reduce_integers(context, op, out, in, axes);
  // A product of float32 runs in double: it would overflow half way where the whole does not.
  if (in.dtype == DType::float64 || op == ReduceOp::prod) reduce_floating<double>(context, op, out, in, axes, correction);
  else reduce_floating<float>(context, op, out, in, axes, correction);
}

void column_moments(const Context& context, const View& in, double* mean, double* squares) {
  const View out(mean, DType::float64, in.device, {1, in.size(1)}, {in.size(1), 1});
  auto run = [&]<class T>(T) {
    const ReducePlan plan = make_reduce_plan(out, in, 1u);
    Recipe<T> recipe = floating_recipe<T>(context, ReduceOp::var, plan);
    run_reduction<T>(context, recipe, plan, Source<T>(in), [&](const ReduceTile& tile, const Partial<double>& p) {
      std::copy_n(p.first, tile.count, mean + tile.out_offset);
      std::copy_n(p.second, tile.count, squares + tile.out_offset);
    });
  };
  if (in.dtype == DType::float64) run(double{});
  else run(float{});
}

}  // namespace tensorlite::cpu::TL_CPU_NS
