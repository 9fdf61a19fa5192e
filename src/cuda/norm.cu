// Batch and layer normalisation of dense [rows, columns]: statistics by Welford's update, then one elementwise pass.
#include "accumulators.cuh"
#include "elementwise.cuh"
#include "reduction.cuh"

namespace tensorlite::cuda {
namespace {

/// The type of statistics: float64 for float64 input, else float32.
template <class T> using Stat = Compute<T>;

/// A vector of parameters in whatever floating-point type it is kept; absent: `otherwise`.
struct AnyVector {
  void* data = nullptr;
  DType dtype = kFloat32;
  explicit AnyVector(const View& view) : data(view.present ? view.data : nullptr), dtype(view.dtype) {}
  __device__ double get(std::int64_t i, double otherwise) const {
    if (!data) return otherwise;
    switch (dtype) {
      case DType::float64: return static_cast<double*>(data)[i];
      case DType::float16: return load(static_cast<float16*>(data)[i]);
      case DType::bfloat16: return load(static_cast<bfloat16*>(data)[i]);
      default: return static_cast<float*>(data)[i];
    }
  }
  __device__ void set(std::int64_t i, double value) const {
    if (!data) return;
    switch (dtype) {
      case DType::float64: static_cast<double*>(data)[i] = value; break;
      case DType::float16: static_cast<float16*>(data)[i] = store<float16>(static_cast<float>(value)); break;
      case DType::bfloat16: static_cast<bfloat16*>(data)[i] = store<bfloat16>(static_cast<float>(value)); break;
      default: static_cast<float*>(data)[i] = static_cast<float>(value);
    }
  }
};

/// Which way a line of the reduction runs through [rows, columns].
enum class Along { columns, rows };

/// Steps of a line: along columns it starts at [0, i] and goes down, along rows at [i, 0] and goes right.
template <Along kAlong> struct Walk {
  std::int64_t columns;
  __device__ std::int64_t start(std::int64_t line) const { return kAlong == Along::columns ? line : line * columns; }
  __device__ std::int64_t step(std::int64_t i) const { return kAlong == Along::columns ? i * columns : i; }
};

template <class T, Along kAlong> struct Values {
  const T* in;
  Walk<kAlong> walk;
  __device__ const T* line(std::int64_t line) const { return in + walk.start(line); }
  __device__ T load(const T* line, std::int64_t i) const { return line[walk.step(i)]; }
  __device__ void add(Moments<Stat<T>>& m, T x, std::int64_t) const { m.add(cuda::load(x), 0); }
};

template <class S> struct StoreStatistics {
  S *mean, *inv_std;
  AnyVector running_mean, running_var;
  double momentum, eps;
  __device__ void operator()(std::int64_t i, const Moments<S>& m) const {
    const S variance = m.count > 0 ? m.deviation / m.count : S(0);
    mean[i] = m.mean;
    inv_std[i] = 1 / ::sqrt(variance + static_cast<S>(eps));
    const double unbiased =
        m.count > 1 ? static_cast<double>(m.deviation) / (static_cast<double>(m.count) - 1) : static_cast<double>(variance);
    running_mean.set(i, running_mean.get(i, 0) * (1 - momentum) + m.mean * momentum);
    running_var.set(i, running_var.get(i, 0) * (1 - momentum) + unbiased * momentum);
  }
};

template <class T, class W> struct Normalise {
  bool has_weight;
  __device__ T operator()(T x, Stat<T> mean, Stat<T> inv_std, W weight, W bias) const {
    const Stat<T> scale = has_weight ? inv_std * static_cast<Stat<T>>(load(weight)) : inv_std;
    return store<T>((load(x) - mean) * scale + static_cast<Stat<T>>(load(bias)));
  }
};

/// Sums of a gradient and of its product with the normalised input.
template <class C> struct GradientSums {
  C plain = 0, product = 0;
  __device__ void merge(const GradientSums& o) {
    plain += o.plain;
    product += o.product;
  }
};

/// kWeighted: the gradient is multiplied by its column's weight first.
template <class T, Along kAlong, Along kStatistics, bool kWeighted> struct Gradients {
  const T *grad_out, *in;
  const Stat<T>*mean, *inv_std;
  AnyVector weight;
  Walk<kAlong> walk;
  __device__ std::int64_t line(std::int64_t line) const { return line; }
  struct Loaded {
    T grad, x;
    Stat<T> mean, inv_std, weight;
  };
  __device__ Loaded load(std::int64_t line, std::int64_t i) const {
    const std::int64_t at = walk.start(line) + walk.step(i);
    const std::int64_t row = kAlong == Along::columns ? i : line, column = kAlong == Along::columns ? line : i;
    const std::int64_t statistic = kStatistics == Along::columns ? column : row;
    return {grad_out[at], in[at], mean[statistic], inv_std[statistic],
            kWeighted ? static_cast<Stat<T>>(weight.get(column, 1)) : Stat<T>(1)};
  }
  __device__ void add(GradientSums<Stat<T>>& sums, const Loaded& v, std::int64_t) const {
    const Stat<T> grad = cuda::load(v.grad) * v.weight;
    sums.plain += grad;
    sums.product += grad * ((cuda::load(v.x) - v.mean) * v.inv_std);
  }
};

/// Keeps the two sums (null: not wanted) and writes them as the parameters' gradients.
template <class S> struct StoreSums {
  S *plain, *product;
  AnyVector grad_bias, grad_weight;
  __device__ void operator()(std::int64_t i, const GradientSums<S>& sums) const {
    if (plain) plain[i] = sums.plain, product[i] = sums.product;
    grad_bias.set(i, sums.plain);
    grad_weight.set(i, sums.product);
  }
};

/// Batch: the weight scales the whole gradient. Layer: it scales each element of grad_out.
template <class T, class W> struct NormaliseGradient {
  Stat<T> inverse_count;
  bool has_weight, layer;
  __device__ T operator()(T grad_out, T x, Stat<T> mean, Stat<T> inv_std, Stat<T> plain, Stat<T> product, W weight) const {
    using C = Stat<T>;
    const C w = has_weight ? static_cast<C>(load(weight)) : C(1), xhat = (load(x) - mean) * inv_std;
    const C grad = layer ? load(grad_out) * w : load(grad_out);
    const C centred = grad - (plain + xhat * product) * inverse_count;
    return store<T>(centred * inv_std * (layer ? C(1) : w));
  }
};

/// A vector spread over [rows, columns] along one of the two.
View spread(const View& vector, const View& like, Along along) {
  return {vector.data, vector.dtype, like.device, like.sizes, along == Along::columns ? Dims{0, 1} : Dims{1, 0}};
}
View scratch_vector(void* data, DType dtype, const View& like) { return {data, dtype, like.device, Dims{}, Dims{}}; }

View optional_spread(const View& vector, const View& like) { return vector.present ? spread(vector, like, Along::columns) : View(); }

/// Calls f(Type<W>) with the type of the weights: the input's own or that of the statistics.
template <class T, class F> void dispatch_weight(const Context& context, const View& weight, const View& bias, F&& f) {
  const View& known = weight.present ? weight : bias;
  if (!known.present || known.dtype == dtype_of<T>) return f(Type<T>{});
  TL_CHECK(known.dtype == dtype_of<Stat<T>>, DTypeError, context.op, "weight and bias must be ", dtype_of<T>, " or ", dtype_of<Stat<T>>,
           ", got ", known.dtype);
  f(Type<Stat<T>>{});
}

template <class T>
void normalise(const Context& context, const View& out, const View& in, const View& mean, const View& inv_std, const View& weight,
               const View& bias, Along along) {
  if (out.numel() == 0) return;
  const View m = spread(mean, in, along), s = spread(inv_std, in, along), w = optional_spread(weight, in), b = optional_spread(bias, in);
  dispatch_weight<T>(context, weight, bias, [&](auto type) {
    using W = typename decltype(type)::type;
    const Axes<6> axes = axes_of<6>(out, {&in, &m, &s, &w, &b});
    Operands<6> operands;
    set_pointers<6>(operands, out, {&in, &m, &s, &w, &b});
    const Normalise<T, W> f{weight.present};
    elementwise<T, T, Stat<T>, Stat<T>, W, W>(context, axes, operands, f, f);
  });
}

template <class T>
void normalise_gradient(const Context& context, const View& grad_in, const View& grad_out, const View& in, const View& weight,
                        const View& mean, const View& inv_std, Stat<T>* sums, Along along) {
  if (grad_in.numel() == 0 || !grad_in.present) return;
  const std::int64_t lines = in.size(along == Along::columns ? 1 : 0), count = in.size(along == Along::columns ? 0 : 1);
  const View m = spread(mean, in, along), s = spread(inv_std, in, along), w = optional_spread(weight, in);
  const View plain = spread(scratch_vector(sums, dtype_of<Stat<T>>, in), in, along);
  const View product = spread(scratch_vector(sums + lines, dtype_of<Stat<T>>, in), in, along);
  dispatch_weight<T>(context, weight, View(), [&](auto type) {
    using W = typename decltype(type)::type;
    const Axes<8> axes = axes_of<8>(grad_in, {&grad_out, &in, &m, &s, &plain, &product, &w});
    Operands<8> operands;
    set_pointers<8>(operands, grad_in, {&grad_out, &in, &m, &s, &plain, &product, &w});
    const NormaliseGradient<T, W> f{Stat<T>(1) / static_cast<Stat<T>>(count), weight.present, along == Along::rows};
    elementwise<T, T, T, Stat<T>, Stat<T>, Stat<T>, Stat<T>, W>(context, axes, operands, f, f);
  });
}

}  // namespace

void batch_norm(const Context& context, const View& out, const View& mean, const View& inv_std, const View& running_mean,
                const View& running_var, const View& in, const View& weight, const View& bias, double momentum, double eps) {
  dispatch_floating(context, in.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const StoreStatistics<Stat<T>> finish{
        mean.ptr<Stat<T>>(), inv_std.ptr<Stat<T>>(), AnyVector(running_mean), AnyVector(running_var), momentum, eps};
    reduce_columns<Moments<Stat<T>>>(context, in.size(1), in.size(0), Values<T, Along::columns>{in.ptr<T>(), {in.size(1)}}, finish);
    normalise<T>(context, out, in, mean, inv_std, weight, bias, Along::columns);
  });
}

void batch_norm_backward(const Context& context, const View& grad_in, const View& grad_weight, const View& grad_bias, const View& grad_out,
                         const View& in, const View& weight, const View& mean, const View& inv_std) {
  dispatch_floating(context, in.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using S = Stat<T>;
    const std::int64_t columns = in.size(1);
    const Workspace sums(context, static_cast<std::size_t>(2 * columns) * sizeof(S));
    const Gradients<T, Along::columns, Along::columns, false> source{grad_out.ptr<T>(), in.ptr<T>(),       mean.ptr<S>(),
                                                                     inv_std.ptr<S>(),  AnyVector(View()), {columns}};
    const StoreSums<S> finish{sums.data<S>(), sums.data<S>() + columns, AnyVector(grad_bias), AnyVector(grad_weight)};
    reduce_columns<GradientSums<S>>(context, columns, in.size(0), source, finish);
    normalise_gradient<T>(context, grad_in, grad_out, in, weight, mean, inv_std, sums.data<S>(), Along::columns);
  });
}

void layer_norm(const Context& context, const View& out, const View& mean, const View& inv_std, const View& in, const View& weight,
                const View& bias, double eps) {
  dispatch_floating(context, in.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const StoreStatistics<Stat<T>> finish{mean.ptr<Stat<T>>(), inv_std.ptr<Stat<T>>(), AnyVector(View()), AnyVector(View()), 0, eps};
    reduce_rows<Moments<Stat<T>>>(context, in.size(0), in.size(1), Values<T, Along::rows>{in.ptr<T>(), {in.size(1)}}, finish);
    normalise<T>(context, out, in, mean, inv_std, weight, bias, Along::rows);
  });
}

void layer_norm_backward(const Context& context, const View& grad_in, const View& grad_weight, const View& grad_bias, const View& grad_out,
                         const View& in, const View& weight, const View& mean, const View& inv_std) {
  dispatch_floating(context, in.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using S = Stat<T>;
    const std::int64_t rows = in.size(0), columns = in.size(1);
    const T *g = grad_out.ptr<T>(), *x = in.ptr<T>();
    const Workspace sums(context, static_cast<std::size_t>(2 * rows) * sizeof(S));
    const Gradients<T, Along::rows, Along::rows, true> by_row{g, x, mean.ptr<S>(), inv_std.ptr<S>(), AnyVector(weight), {columns}};
    const StoreSums<S> keep{sums.data<S>(), sums.data<S>() + rows, AnyVector(View()), AnyVector(View())};
    reduce_rows<GradientSums<S>>(context, rows, columns, by_row, keep);
    normalise_gradient<T>(context, grad_in, grad_out, in, weight, mean, inv_std, sums.data<S>(), Along::rows);
    if (!grad_weight.present && !grad_bias.present) return;
    const Gradients<T, Along::columns, Along::rows, false> by_column{g, x, mean.ptr<S>(), inv_std.ptr<S>(), AnyVector(View()), {columns}};
    reduce_columns<GradientSums<S>>(context, columns, rows, by_column,
                                    StoreSums<S>{nullptr, nullptr, AnyVector(grad_bias), AnyVector(grad_weight)});
  });
}

}  // namespace tensorlite::cuda
