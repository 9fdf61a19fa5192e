#include "catch.hpp"
#include "kernel_arrays.hpp"

#include <limits>

using namespace kernel_arrays;

namespace {

struct Case {
  std::int64_t n, h, w, c, o, kh, kw;
  tl::ConvParams params;

  std::int64_t out_size(int axis) const {
    const std::int64_t input = axis == 0 ? h : w, kernel = axis == 0 ? kh : kw;
    const std::int64_t room = input + params.padding[2 * axis] + params.padding[2 * axis + 1] - params.dilation[axis] * (kernel - 1) - 1;
    return room < 0 ? 0 : room / params.stride[axis] + 1;
  }
  std::int64_t group_c() const { return c / params.groups; }
  tl::Dims in_sizes() const { return {n, h, w, c}; }
  tl::Dims out_sizes() const { return {n, out_size(0), out_size(1), o}; }
  tl::Dims weight_sizes() const { return {o, kh, kw, group_c()}; }
};

std::ostream& operator<<(std::ostream& s, const Case& c) {
  const auto& p = c.params;
  return s << "n " << c.n << " h " << c.h << " w " << c.w << " c " << c.c << " o " << c.o << " k " << c.kh << "x" << c.kw << " stride "
           << p.stride[0] << "," << p.stride[1] << " dilation " << p.dilation[0] << "," << p.dilation[1] << " pad " << p.padding[0] << ","
           << p.padding[1] << "," << p.padding[2] << "," << p.padding[3] << " groups " << p.groups;
}

/// f(output index, input index, weight index) for every product of the convolution.
template <class F> void for_each_product(const Case& c, F&& f) {
  const std::int64_t oh = c.out_size(0), ow = c.out_size(1), group_o = c.o / c.params.groups;
  for (std::int64_t n = 0; n < c.n; ++n)
    for (std::int64_t y = 0; y < oh; ++y)
      for (std::int64_t x = 0; x < ow; ++x)
        for (std::int64_t o = 0; o < c.o; ++o)
          for (std::int64_t ky = 0; ky < c.kh; ++ky)
            for (std::int64_t kx = 0; kx < c.kw; ++kx) {
              const std::int64_t iy = y * c.params.stride[0] + ky * c.params.dilation[0] - c.params.padding[0];
              const std::int64_t ix = x * c.params.stride[1] + kx * c.params.dilation[1] - c.params.padding[2];
              if (iy < 0 || iy >= c.h || ix < 0 || ix >= c.w) continue;
              for (std::int64_t k = 0; k < c.group_c(); ++k)
                f(((n * oh + y) * ow + x) * c.o + o, ((n * c.h + iy) * c.w + ix) * c.c + o / group_o * c.group_c() + k,
                  ((o * c.kh + ky) * c.kw + kx) * c.group_c() + k);
            }
}

const tl::detail::OpPlace kPlace{"Conv2D", tl::cpu_device()};

/// Operands of a case and all results of the kernels.
template <class T> struct Run {
  Case c;
  Array<T> in, weight, bias, grad_out;
  Array<T> out, grad_in, grad_weight, grad_bias;

  Run(const Case& c_, std::mt19937& random)
      : c(c_),
        in(c.in_sizes()),
        weight(c.weight_sizes()),
        bias({c.o}),
        grad_out(c.out_sizes()),
        out(c.out_sizes()),
        grad_in(c.in_sizes()),
        grad_weight(c.weight_sizes()),
        grad_bias({c.o}) {
    for (auto* a : {&in, &weight, &bias, &grad_out}) a->randomize(random);
  }
  void compute(tl::Activation activation = tl::Activation::none) {
    for (auto* a : {&out, &grad_in, &grad_weight, &grad_bias}) a->fill(std::numeric_limits<float>::quiet_NaN());
    TL_CALL(kPlace, conv2d, out.view(), in.view(), weight.view(), bias.view(), c.params, activation);
    TL_CALL(kPlace, conv2d_backward_input, grad_in.view(), grad_out.view(), weight.view(), c.params);
    TL_CALL(kPlace, conv2d_backward_weight, grad_weight.view(), grad_bias.view(), grad_out.view(), in.view(), c.params);
  }
  /// float32, 3x3 or 5x5, step 1 and enough channels: computed from tiles of 6x6, so errors are those of a tile's largest sums.
  bool may_use_winograd() const {
    const auto& p = c.params;
    return std::is_same_v<T, float> && (c.kh == 3 || c.kh == 5) && c.kw == c.kh && p.stride[0] == 1 && p.stride[1] == 1 &&
           p.dilation[0] == 1 && p.dilation[1] == 1 && p.groups == 1 && c.c >= 16 && c.o >= 16;
  }
  void check() {
    using References = std::vector<Reference>;
    References ref_out(static_cast<std::size_t>(out.numel())), ref_in(static_cast<std::size_t>(in.numel()));
    References ref_weight(static_cast<std::size_t>(weight.numel())), ref_bias(static_cast<std::size_t>(c.o));
    for_each_product(c, [&](std::int64_t o, std::int64_t i, std::int64_t w) {
      ref_out[static_cast<std::size_t>(o)].add(in.at(i), weight.at(w));
      ref_in[static_cast<std::size_t>(i)].add(grad_out.at(o), weight.at(w));
      ref_weight[static_cast<std::size_t>(w)].add(grad_out.at(o), in.at(i));
    });
    for (std::int64_t i = 0; i < out.numel(); ++i) {
      ref_out[static_cast<std::size_t>(i)].add(bias.at(i % c.o));
      ref_bias[static_cast<std::size_t>(i % c.o)].add(grad_out.at(i));
    }
    INFO(c);
    const double spread = may_use_winograd() ? 4e-6 : 0;
    REQUIRE(first_mismatch(out, ref_out, spread) == -1);
    REQUIRE(first_mismatch(grad_in, ref_in, spread) == -1);
    REQUIRE(first_mismatch(grad_weight, ref_weight, spread) == -1);
    REQUIRE(first_mismatch(grad_bias, ref_bias) == -1);
    for (const auto* a : {&in, &weight, &bias, &grad_out, &out, &grad_in, &grad_weight, &grad_bias}) REQUIRE(a->guards_intact());
  }
};

template <class T> void check(const Case& c, unsigned seed = 1) {
  std::mt19937 random(seed);
  Run<T> run(c, random);
  run.compute();
  run.check();
}

tl::ConvParams params(std::int64_t stride, std::int64_t padding, std::int64_t dilation = 1, std::int64_t groups = 1) {
  return {{stride, stride}, {dilation, dilation}, {padding, padding, padding, padding}, groups};
}

Case random_case(std::mt19937& random) {
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<std::int64_t>(low, high)(random); };
  Case c;
  const std::int64_t groups = pick(0, 2) ? 1 : pick(2, 4);
  c.n = pick(1, 3);
  c.kh = pick(1, 4);
  c.kw = pick(1, 4);
  c.params = {{pick(1, 3), pick(1, 3)}, {pick(1, 3), pick(1, 2)}, {pick(0, 3), pick(0, 3), pick(0, 3), pick(0, 3)}, groups};
  c.h = (c.kh - 1) * c.params.dilation[0] + 1 + pick(0, 12);
  c.w = (c.kw - 1) * c.params.dilation[1] + 1 + pick(0, 30);
  c.c = groups * (pick(0, 1) ? pick(1, 5) : pick(6, 20));
  c.o = groups * (pick(0, 1) ? pick(1, 8) : 16 * pick(1, 3));
  return c;
}

template <class T> void check_random(unsigned seed, int count) {
  std::mt19937 random(seed);
  for (int i = 0; i < count; ++i) check<T>(random_case(random), static_cast<unsigned>(i));
}

std::vector<double> values(const Array<float>& a) {
  std::vector<double> v;
  for (std::int64_t i = 0; i < a.numel(); ++i) v.push_back(a.at(i));
  return v;
}

}  // namespace

TEST_CASE("conv2d and its gradients agree with float64 loops", "[cpu][conv]") {
  SECTION("float32") { check_random<float>(1, 60); }
  SECTION("float64") { check_random<double>(2, 40); }
  SECTION("float16") { check_random<tl::float16>(3, 20); }
  SECTION("bfloat16") { check_random<tl::bfloat16>(4, 20); }
}

TEST_CASE("conv2d of the shapes that networks are made of", "[cpu][conv]") {
  check<float>({2, 28, 28, 1, 32, 3, 3, params(1, 0)});
  check<float>({2, 26, 26, 32, 64, 3, 3, params(1, 0)});
  check<float>({1, 28, 28, 32, 32, 5, 5, params(1, 2)});
  check<float>({2, 17, 14, 48, 80, 5, 5, params(1, 2)});
  check<float>({1, 21, 12, 16, 32, 5, 5, {{1, 1}, {1, 1}, {3, 0, 1, 4}, 1}});
  check<float>({2, 15, 15, 16, 16, 5, 5, params(1, 0)});
  check<float>({1, 20, 20, 32, 32, 3, 5, params(1, 1)});
  check<float>({2, 16, 16, 24, 40, 3, 3, params(1, 1)});
  check<float>({3, 9, 9, 64, 48, 1, 1, params(1, 0)});
  check<float>({2, 9, 9, 64, 48, 1, 1, params(2, 0)});
  check<float>({1, 40, 40, 3, 64, 7, 7, params(2, 3)});
  check<float>({3, 23, 31, 1, 20, 5, 6, {{2, 3}, {3, 1}, {4, 1, 0, 5}, 1}});
  check<double>({2, 90, 9, 2, 7, 3, 3, params(1, 1)});
  check<float>({5, 4, 4, 64, 32, 3, 3, params(1, 0)});
  check<float>({2, 7, 7, 33, 65, 3, 3, params(1, 1)});
  check<float>({3, 14, 13, 48, 80, 3, 3, params(1, 1)});
  check<float>({1, 26, 26, 144, 32, 3, 3, params(1, 1)});
  check<float>({1, 17, 8, 16, 32, 3, 3, {{1, 1}, {1, 1}, {2, 0, 0, 3}, 1}});
  check<float>({9, 6, 6, 16, 16, 3, 3, params(1, 0)});
  check<float>({1, 3, 200, 2, 5, 3, 3, params(1, 1)});
  check<float>({1, 200, 3, 2, 5, 3, 3, params(1, 1)});
  check<float>({1, 20, 20, 4, 8, 3, 3, params(1, 2, 2)});
}

TEST_CASE("conv2d by groups and depthwise", "[cpu][conv]") {
  for (const std::int64_t stride : {1, 2})
    for (const std::int64_t c : {3, 8, 16, 37, 64}) {
      check<float>({2, 11, 13, c, c, 3, 3, params(stride, 1, 1, c)});
      check<float>({1, 11, 13, c, 2 * c, 3, 3, params(stride, 1, 1, c)});
      check<double>({1, 9, 7, c, c, 2, 5, params(stride, 2, 1, c)});
    }
  check<float>({2, 10, 10, 32, 64, 3, 3, params(1, 1, 1, 2)});
  check<tl::bfloat16>({2, 10, 10, 20, 20, 3, 3, params(1, 1, 1, 20)});
  check<float>({1, 12, 12, 18, 18, 3, 3, params(1, 2, 2, 18)});
}

TEST_CASE("conv2d of an empty batch", "[cpu][conv]") {  // A32
  std::mt19937 random(1);
  Run<float> run({0, 5, 5, 3, 4, 3, 3, params(1, 0)}, random);
  run.compute();
  REQUIRE(values(run.grad_weight) == std::vector<double>(4 * 27, 0.0));
  REQUIRE(values(run.grad_bias) == std::vector<double>(4, 0.0));
  run.check();
}

TEST_CASE("conv2d's stride beyond the kernel leaves zeros in the input gradient", "[cpu][conv]") {
  check<float>({2, 9, 11, 3, 4, 2, 1, params(3, 0)});
  check<float>({1, 9, 11, 3, 4, 1, 1, params(4, 1)});
  check<float>({1, 16, 16, 3, 4, 3, 3, {{4, 3}, {2, 2}, {1, 0, 2, 1}, 1}});
}

TEST_CASE("conv2d carries NaN through zeros and fuses relu", "[cpu][conv]") {
  std::mt19937 random(1);
  Run<float> run({1, 6, 6, 4, 20, 3, 3, params(1, 1)}, random);
  run.compute();
  const auto plain = values(run.out);
  run.compute(tl::Activation::relu);
  for (std::size_t i = 0; i < plain.size(); ++i) REQUIRE(run.out.at(static_cast<std::int64_t>(i)) == std::max(plain[i], 0.0));
  run.weight.fill(0);
  run.in.data()[(2 * 6 + 3) * 4] = std::numeric_limits<float>::quiet_NaN();
  run.compute(tl::Activation::relu);
  for (std::int64_t y = 0; y < 6; ++y)
    for (std::int64_t x = 0; x < 6; ++x)
      for (std::int64_t o = 0; o < 20; ++o)
        REQUIRE(std::isnan(run.out.at((y * 6 + x) * 20 + o)) == (std::abs(y - 2) <= 1 && std::abs(x - 3) <= 1));
}

TEST_CASE("conv2d and its gradients are bit-equal for any number of threads", "[cpu][conv]") {
  const Case cases[] = {{3, 14, 15, 8, 33, 3, 3, params(1, 1)},
                        {1, 60, 40, 3, 16, 5, 5, params(2, 2)},
                        {7, 28, 28, 1, 32, 3, 3, params(1, 0)},
                        {2, 20, 20, 24, 24, 3, 3, params(1, 1, 1, 24)},
                        {2, 12, 12, 40, 64, 1, 1, params(1, 0)}};
  for (const Case& c : cases) {
    std::mt19937 random(5);
    Run<float> one(c, random);
    Run<float> two = one, five = one;
    with_threads(1, [&] { one.compute(); });
    with_threads(2, [&] { two.compute(); });
    with_threads(5, [&] { five.compute(); });
    INFO(c);
    for (Run<float>* other : {&two, &five}) {
      REQUIRE(one.out.same_bits(other->out));
      REQUIRE(one.grad_in.same_bits(other->grad_in));
      REQUIRE(one.grad_weight.same_bits(other->grad_weight));
      REQUIRE(one.grad_bias.same_bits(other->grad_bias));
    }
  }
}
