// Pooling of the CPU against loops in double.
#include "kernel_test.hpp"

using namespace kernel_test;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();

struct Case {
  std::int64_t n, h, w, c;
  PoolParams params;
  int ceil = 0;
  Dims in_sizes() const { return {n, h, w, c}; }
  std::int64_t out_size(int axis) const {
    const std::int64_t span = (axis == 0 ? h : w) + params.padding[2 * axis] + params.padding[2 * axis + 1] -
                              (params.kernel[axis] - 1) * params.dilation[axis] - 1;
    std::int64_t out = span / params.stride[axis] + 1;
    if (ceil && span % params.stride[axis] != 0 && out * params.stride[axis] < (axis == 0 ? h : w) + params.padding[2 * axis]) ++out;
    return out;
  }
  Dims out_sizes() const { return {n, out_size(0), out_size(1), c}; }
};

PoolParams params(std::int64_t kernel, std::int64_t stride, std::int64_t padding = 0, std::int64_t dilation = 1) {
  return {.kernel = {kernel, kernel},
          .stride = {stride, stride},
          .dilation = {dilation, dilation},
          .padding = {padding, padding, padding, padding}};
}

/// f(output index, c, list of pixels in the window, elements of the window clipped to the padded image).
template <class F> void for_each_naive_window(const Case& k, F&& f) {
  const PoolParams& p = k.params;
  const Dims out = k.out_sizes();
  for (std::int64_t i = 0; i < out.product(); ++i) {
    const std::int64_t c = i % k.c, ow = i / k.c % out[2], oh = i / k.c / out[2] % out[1], n = i / k.c / out[2] / out[1];
    std::vector<std::int64_t> pixels;
    std::int64_t padded = 0;
    for (std::int64_t a = 0; a < p.kernel[0]; ++a)
      for (std::int64_t b = 0; b < p.kernel[1]; ++b) {
        const std::int64_t y = oh * p.stride[0] - p.padding[0] + a * p.dilation[0], x = ow * p.stride[1] - p.padding[2] + b * p.dilation[1];
        padded += y < k.h + p.padding[1] && x < k.w + p.padding[3];
        if (y >= 0 && y < k.h && x >= 0 && x < k.w) pixels.push_back(y * k.w + x);
      }
    f(i, n, c, pixels, padded);
  }
}

std::vector<Case> cases() {
  std::vector<Case> list;
  for (std::int64_t c : {1, 3, 8, 16, 33, 150}) {
    list.push_back({2, 6, 7, c, params(2, 2)});
    list.push_back({2, 6, 7, c, params(2, 2), 1});
    list.push_back({1, 7, 8, c, params(3, 2, 1)});
    list.push_back({1, 7, 8, c, params(3, 2, 1), 1});
    list.push_back({1, 9, 9, c, params(3, 1, 1, 2)});
    list.push_back({3, 5, 5, c, params(5, 1)});
    list.push_back({1, 10, 12, c, params(9, 3, 4), 1});
    Case uneven{2, 6, 5, c, params(2, 1)};
    uneven.params.kernel[1] = 3;
    uneven.params.stride[0] = 2;
    uneven.params.padding[1] = 1;
    uneven.params.padding[3] = 1;
    list.push_back(uneven);
  }
  return list;
}

struct MaxPool {
  Array out, indices;
};
MaxPool max_pool(const Array& in, const Case& k) {
  MaxPool r{Array(in.view().dtype, k.out_sizes()), Array(kInt32, k.out_sizes())};
  r.out.fill(77);
  TL_KERNEL(max_pool2d, r.out, r.indices, in, k.params);
  return r;
}

}  // namespace

TEST_CASE("max_pool2d agrees with loops", "[pool]") {
  for (DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16})
    for (const Case& k : cases()) {
      const Array in = Array::random(dtype, k.in_sizes(), 1);
      const MaxPool got = max_pool(in, k);
      Array alone(dtype, k.out_sizes());
      TL_KERNEL(max_pool2d, alone, View(), in, k.params);
      std::vector<double> values, winners;
      for_each_naive_window(k, [&](std::int64_t, std::int64_t n, std::int64_t c, const std::vector<std::int64_t>& pixels, std::int64_t) {
        double best = -kInfinity, winner = -1;
        for (std::int64_t pixel : pixels) {
          const double x = in[(n * k.h * k.w + pixel) * k.c + c];
          if (winner < 0 || x > best) best = x, winner = static_cast<double>(pixel);
        }
        values.push_back(best);
        winners.push_back(winner);
      });
      require_close(got.out, values, 0);
      require_close(alone, values, 0);
      require_close(got.indices, winners, 0);
    }
}

TEST_CASE("max_pool2d_backward gives the gradient to the winners", "[pool]") {
  for (DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16})
    for (const Case& k : cases()) {
      const Array in = Array::random(dtype, k.in_sizes(), 1), g = Array::random(dtype, k.out_sizes(), 2);
      const MaxPool pooled = max_pool(in, k);
      Array grad(dtype, k.in_sizes());
      grad.fill(77);
      TL_KERNEL(max_pool2d_backward, grad, g, pooled.indices, k.params);
      std::vector<double> expected(static_cast<std::size_t>(in.numel()));
      const std::int64_t out_pixels = k.out_size(0) * k.out_size(1);
      for (std::int64_t i = 0; i < g.numel(); ++i) {
        const auto pixel = static_cast<std::int64_t>(pooled.indices[i]);
        if (pixel >= 0) expected[static_cast<std::size_t>((i / k.c / out_pixels * k.h * k.w + pixel) * k.c + i % k.c)] += g[i];
      }
      require_close(grad, expected, tolerance(dtype));
    }
}

TEST_CASE("A08: padding does not win", "[pool][A08]") {
  const Case k{1, 2, 2, 1, params(2, 2, 1)};
  Array in(kFloat32, {1, 2, 2, 1}), g(kFloat32, {1, 2, 2, 1}), grad(kFloat32, {1, 2, 2, 1});
  in.fill(-1);
  g.fill(1);
  const MaxPool got = max_pool(in, k);
  require_close(got.out, {-1, -1, -1, -1}, 0);
  TL_KERNEL(max_pool2d_backward, grad, g, got.indices, k.params);
  require_close(grad, {1, 1, 1, 1}, 0);
}

TEST_CASE("A09: NaN wins in every channel and place, the first one", "[pool][A09]") {
  for (DType dtype : {kFloat32, kFloat64, kFloat16})
    for (std::int64_t c = 1; c <= 40; ++c)
      for (std::int64_t place = 0; place < 4; ++place) {
        Array in(dtype, {1, 2, 2, c});
        for (std::int64_t i = 0; i < 4 * c; ++i)
          in.set(i, i / c == place || (place == 1 && i / c == 3) ? kNaN : 3 - static_cast<double>(i / c));
        const MaxPool got = max_pool(in, {1, 2, 2, c, params(2, 2)});
        for (std::int64_t i = 0; i < c; ++i) REQUIRE((std::isnan(got.out[i]) && got.indices[i] == static_cast<double>(place)));
      }
}

TEST_CASE("A10: a window of -inf picks its first element", "[pool][A10]") {
  for (std::int64_t c : {1, 20}) {
    const Case k{1, 2, 2, c, params(2, 2)};
    Array in(kFloat32, k.in_sizes()), g(kFloat32, k.out_sizes()), grad(kFloat32, k.in_sizes());
    in.fill(-kInfinity);
    g.fill(1);
    const MaxPool got = max_pool(in, k);
    TL_KERNEL(max_pool2d_backward, grad, g, got.indices, k.params);
    for (std::int64_t i = 0; i < c; ++i) REQUIRE((got.out[i] == -kInfinity && got.indices[i] == 0));
    for (std::int64_t i = 0; i < 4 * c; ++i) REQUIRE(grad[i] == (i < c ? 1 : 0));
  }
}

TEST_CASE("avg_pool2d and its gradient agree with loops", "[pool]") {
  for (DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16})
    for (Case k : cases())
      for (bool include : {true, false}) {
        if (k.params.dilation[0] != 1) continue;
        k.params.count_include_pad = include;
        const Array in = Array::random(dtype, k.in_sizes(), 1), g = Array::random(dtype, k.out_sizes(), 2);
        Array out(dtype, k.out_sizes()), grad(dtype, k.in_sizes());
        out.fill(77);
        grad.fill(77);
        TL_KERNEL(avg_pool2d, out, in, k.params);
        TL_KERNEL(avg_pool2d_backward, grad, g, k.params);
        std::vector<double> values, gradients(static_cast<std::size_t>(in.numel()));
        for_each_naive_window(
            k, [&](std::int64_t i, std::int64_t n, std::int64_t c, const std::vector<std::int64_t>& pixels, std::int64_t padded) {
              const double divisor = static_cast<double>(include ? padded : static_cast<std::int64_t>(pixels.size()));
              double sum = 0;
              for (std::int64_t pixel : pixels) {
                const std::int64_t at = (n * k.h * k.w + pixel) * k.c + c;
                sum += in[at];
                gradients[static_cast<std::size_t>(at)] += g[i] / divisor;
              }
              values.push_back(pixels.empty() ? 0 : sum / divisor);
            });
        require_close(out, values, tolerance(dtype));
        require_close(grad, gradients, tolerance(dtype));
      }
}

TEST_CASE("A11: ceil mode and the padding divisor", "[pool][A11]") {
  Case row{1, 1, 5, 1, {.kernel = {1, 2}, .stride = {1, 2}}, 1};
  Array out(kFloat32, {1, 1, 3, 1});
  TL_KERNEL(avg_pool2d, out, Array::of(kFloat32, {1, 1, 5, 1}, {2, 4, 6, 8, 11}), row.params);
  require_close(out, {3, 7, 11}, 0);
  Array in(kFloat32, {1, 6, 6, 1}), result(kFloat32, {1, 4, 4, 1});
  for (std::int64_t i = 0; i < 36; ++i) in.set(i, static_cast<double>(i));
  PoolParams p = params(3, 2, 1);
  TL_KERNEL(avg_pool2d, result, in, p);
  require_close(result, {14.0 / 9, 30.0 / 9, 42.0 / 9, 16.0 / 6, 75.0 / 9, 14, 16, 8.5, 147.0 / 9, 26, 28, 14.5, 61.0 / 6, 16, 17, 8.75},
                1e-6);
  p.count_include_pad = false;
  TL_KERNEL(avg_pool2d, result, in, p);
  require_close(result, {3.5, 5, 7, 8, 12.5, 14, 16, 17, 24.5, 26, 28, 29, 30.5, 32, 34, 35}, 1e-6);
}

TEST_CASE("adaptive average pooling and its gradient", "[pool]") {
  for (std::int64_t size : {1, 2, 3, 5, 7})
    for (std::int64_t c : {1, 20}) {
      const std::int64_t h = 7, w = 5;
      const PoolParams p{.adaptive = true};
      Array in = Array::random(kFloat64, {2, h, w, c}, 1), out(kFloat64, {2, size, size, c}), grad(kFloat64, {2, h, w, c});
      const Array g = Array::random(kFloat64, out.sizes(), 2);
      TL_KERNEL(avg_pool2d, out, in, p);
      std::vector<double> expected;
      for (std::int64_t i = 0; i < out.numel(); ++i) {
        const std::int64_t ch = i % c, ow = i / c % size, oh = i / c / size % size, n = i / c / size / size;
        double sum = 0, count = 0;
        for (std::int64_t y = oh * h / size; y < ((oh + 1) * h + size - 1) / size; ++y)
          for (std::int64_t x = ow * w / size; x < ((ow + 1) * w + size - 1) / size; ++x)
            sum += in[((n * h + y) * w + x) * c + ch], ++count;
        expected.push_back(sum / count);
      }
      require_close(out, expected, 1e-12);
      TL_KERNEL(avg_pool2d_backward, grad, g, p);
      require_close(grad,
                    numeric_gradient(in,
                                     [&] {
                                       TL_KERNEL(avg_pool2d, out, in, p);
                                       return dot(g, out);
                                     }),
                    1e-8);
    }
}

TEST_CASE("global average pooling of many ones is exact", "[pool]") {
  Array in(kFloat32, {1, 5000, 5000, 1}), out(kFloat32, {1, 1, 1, 1});
  std::fill_n(in.view().ptr<float>(), in.numel(), 1.0f);
  TL_KERNEL(avg_pool2d, out, in, PoolParams{.adaptive = true});
  REQUIRE(out[0] == Approx(1.0).epsilon(1e-7));
}

TEST_CASE("pooling of empty tensors does nothing", "[pool]") {
  const Array in(kFloat32, {0, 4, 4, 3}), out(kFloat32, {0, 2, 2, 3}), indices(kInt32, {0, 2, 2, 3});
  TL_KERNEL(max_pool2d, out, indices, in, params(2, 2));
  TL_KERNEL(max_pool2d_backward, in, out, indices, params(2, 2));
  TL_KERNEL(avg_pool2d, out, in, params(2, 2));
  TL_KERNEL(avg_pool2d_backward, in, out, params(2, 2));
  REQUIRE(out.numel() == 0);
}

TEST_CASE("pooling gives the same bits for 1 and 2 threads", "[pool]") {
  for (const Case& k : {Case{3, 40, 40, 33, params(3, 2, 1)}, Case{1, 60, 60, 64, params(3, 1)}, Case{64, 28, 28, 8, params(2, 2)}}) {
    const Array in = Array::random(kFloat32, k.in_sizes(), 1), g = Array::random(kFloat32, k.out_sizes(), 2);
    require_same_bits([&] { return max_pool(in, k).out; });
    require_same_bits([&] {
      Array grad(kFloat32, k.in_sizes());
      TL_KERNEL(max_pool2d_backward, grad, g, max_pool(in, k).indices, k.params);
      return grad;
    });
    require_same_bits([&] {
      Array grad(kFloat32, k.in_sizes());
      TL_KERNEL(avg_pool2d_backward, grad, g, k.params);
      return grad;
    });
  }
}
