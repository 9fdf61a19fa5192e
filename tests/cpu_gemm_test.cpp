#include "catch.hpp"
#include "kernel_arrays.hpp"

#include <limits>

using namespace kernel_arrays;

namespace {

/// One operand of a product inside a larger array: batch, rows and columns with some layout.
template <class T> struct Operand {
  Array<T> array;
  tl::View view;
};

enum class Layout { plain, transposed, sliced, batch_broadcast, row_broadcast, reversed };

template <class T>
Operand<T> make_operand(std::mt19937& random, Layout layout, std::int64_t batch, std::int64_t rows, std::int64_t columns) {
  switch (layout) {
    case Layout::transposed: {
      Operand<T> o{Array<T>({batch, columns, rows}).randomize(random), {}};
      o.view = o.array.view({batch, rows, columns}, {rows * columns, 1, rows});
      return o;
    }
    case Layout::sliced: {  // every other column of every third row, not from the start
      Operand<T> o{Array<T>({batch, 3 * rows + 1, 2 * columns + 1}).randomize(random), {}};
      const std::int64_t pitch = 2 * columns + 1;
      o.view = o.array.view({batch, rows, columns}, {(3 * rows + 1) * pitch, 3 * pitch, 2}, pitch + 1);
      return o;
    }
    case Layout::batch_broadcast: {
      Operand<T> o{Array<T>({rows, columns}).randomize(random), {}};
      o.view = o.array.view({batch, rows, columns}, {0, columns, 1});
      return o;
    }
    case Layout::row_broadcast: {
      Operand<T> o{Array<T>({batch, columns}).randomize(random), {}};
      o.view = o.array.view({batch, rows, columns}, {columns, 0, 1});
      return o;
    }
    case Layout::reversed: {
      Operand<T> o{Array<T>({batch, rows, columns}).randomize(random), {}};
      o.view = o.array.view({batch, rows, columns}, {rows * columns, -columns, -1}, std::max<std::int64_t>(0, rows * columns - 1));
      return o;
    }
    default: {
      Operand<T> o{Array<T>({batch, rows, columns}).randomize(random), {}};
      o.view = o.array.view();
      return o;
    }
  }
}

template <class T> double element(const tl::View& v, std::int64_t b, std::int64_t i, std::int64_t j) {
  return static_cast<double>(v.ptr<T>()[b * v.stride(0) + i * v.stride(1) + j * v.stride(2)]);
}

template <class T> std::vector<Reference> reference(const tl::View& a, const tl::View& b, Array<T>* bias) {
  std::vector<Reference> out;
  for (std::int64_t n = 0; n < a.size(0); ++n)
    for (std::int64_t i = 0; i < a.size(1); ++i)
      for (std::int64_t j = 0; j < b.size(2); ++j) {
        Reference r;
        for (std::int64_t k = 0; k < a.size(2); ++k) r.add(element<T>(a, n, i, k), element<T>(b, n, k, j));
        if (bias) r.add(bias->at(j));
        out.push_back(r);
      }
  return out;
}

void run(const tl::View& out, const tl::View& a, const tl::View& b, const tl::View& bias = {},
         tl::Activation activation = tl::Activation::none) {
  TL_CALL((tl::detail::OpPlace{"MatMul", tl::cpu_device()}), matmul, out, a, b, bias, activation);
}

template <class T>
void check(std::mt19937& random, std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k, Layout la, Layout lb) {
  auto a = make_operand<T>(random, la, batch, m, k);
  auto b = make_operand<T>(random, lb, batch, k, n);
  const bool with_bias = random() % 2 == 0;
  Array<T> out({batch, m, n}), bias({n});
  bias.randomize(random);
  out.fill(std::numeric_limits<float>::quiet_NaN());
  run(out.view(), a.view, b.view, with_bias ? bias.view() : tl::View{});
  INFO("batch " << batch << " m " << m << " n " << n << " k " << k << " layouts " << int(la) << " " << int(lb) << " bias " << with_bias);
  REQUIRE(first_mismatch(out, reference<T>(a.view, b.view, with_bias ? &bias : nullptr)) == -1);
  REQUIRE(out.guards_intact());
}

template <class T> void check_random(unsigned seed, int count, std::int64_t limit) {
  std::mt19937 random(seed);
  const auto size = [&] { return static_cast<std::int64_t>(random() % static_cast<unsigned>(limit)) + 1; };
  for (int i = 0; i < count; ++i)
    check<T>(random, 1 + static_cast<std::int64_t>(random() % 3), size(), size(), size(), static_cast<Layout>(random() % 6),
             static_cast<Layout>(random() % 6));
}

}  // namespace

TEST_CASE("matmul agrees with float64 loops for any layout and dtype", "[cpu][gemm]") {
  SECTION("float32") { check_random<float>(1, 60, 70); }
  SECTION("float64") { check_random<double>(2, 40, 70); }
  SECTION("float16") { check_random<tl::float16>(3, 25, 60); }
  SECTION("bfloat16") { check_random<tl::bfloat16>(4, 25, 60); }
  SECTION("int32") { check_random<std::int32_t>(5, 20, 40); }
  SECTION("int64") { check_random<std::int64_t>(6, 20, 40); }
}

TEST_CASE("matmul at the edges of register tiles and blocks", "[cpu][gemm]") {
  std::mt19937 random(7);
  for (std::int64_t m : {1, 2, 3, 4, 5, 6, 7, 13, 14, 15, 28, 29})
    for (std::int64_t n : {1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48}) {
      check<float>(random, 1, m, n, 19, Layout::plain, Layout::transposed);
      check<double>(random, 1, m, n, 18, Layout::transposed, Layout::plain);
    }
  for (std::int64_t k : {1, 2, 15, 16, 17, 383, 384, 385, 770, 1153}) {
    check<float>(random, 1, 15, 33, k, Layout::plain, Layout::transposed);
    check<float>(random, 2, 9, 10, k, Layout::transposed, Layout::plain);
    check<tl::bfloat16>(random, 1, 15, 33, k, Layout::plain, Layout::plain);
    check<double>(random, 1, 15, 33, k, Layout::plain, Layout::plain);
  }
  check<float>(random, 1, 1100, 37, 40, Layout::plain, Layout::plain);
  check<float>(random, 1, 37, 1100, 40, Layout::plain, Layout::transposed);
}

TEST_CASE("matmul with vectors and long inner products", "[cpu][gemm]") {
  std::mt19937 random(8);
  for (const auto layout : {Layout::plain, Layout::transposed, Layout::sliced}) {
    check<float>(random, 1, 1, 300, 200, layout, layout);
    check<float>(random, 1, 300, 1, 200, layout, layout);
    check<float>(random, 1, 1, 1, 5000, layout, layout);
    check<float>(random, 70, 1, 9, 17, layout, layout);
    check<float>(random, 1, 300, 200, 1, layout, layout);
    check<double>(random, 1, 1, 33, 700, layout, layout);
  }
  for (const auto& [m, n] : {std::pair{5, 5}, {64, 128}, {13, 7}, {7, 203}, {203, 7}}) {  // thin and deep
    check<float>(random, 1, m, n, 2048 + 77, Layout::plain, Layout::transposed);
    check<double>(random, 2, m, n, 1024, Layout::plain, Layout::transposed);
  }
  for (const auto la : {Layout::plain, Layout::transposed})
    for (const auto lb : {Layout::plain, Layout::transposed}) {
      check<float>(random, 2, 64, 10, 1024, la, lb);
      check<double>(random, 1, 7, 70, 512 + 9, la, lb);
    }
  for (const auto layout : {Layout::plain, Layout::transposed})  // k is cut as well; the right operand is read in place
    for (const std::int64_t k : {1030, 2500}) {
      check<float>(random, 2, 20, 90, k, Layout::plain, layout);
      check<double>(random, 1, 20, 90, k, Layout::plain, layout);
      check<tl::bfloat16>(random, 1, 20, 90, k, Layout::plain, layout);
    }
  check<float>(random, 3, 40, 50, 60, Layout::plain, Layout::batch_broadcast);
}

TEST_CASE("matmul with nothing to add up gives the bias or zero over garbage", "[cpu][gemm]") {
  Array<float> a({2, 3, 0}), b({2, 0, 20}), out({2, 3, 20}), bias({20});
  bias.fill(1.5);
  out.fill(std::numeric_limits<float>::quiet_NaN());
  run(out.view(), a.view(), b.view());
  for (std::int64_t i = 0; i < out.numel(); ++i) REQUIRE(out.at(i) == 0);
  out.fill(std::numeric_limits<float>::quiet_NaN());
  run(out.view(), a.view(), b.view(), bias.view());
  for (std::int64_t i = 0; i < out.numel(); ++i) REQUIRE(out.at(i) == 1.5);

  Array<float> none({2, 0, 20});
  run(none.view(), Array<float>({2, 0, 4}).view(), Array<float>({2, 4, 20}).view());
  run(Array<float>({0, 3, 4}).view(), Array<float>({0, 3, 2}).view(), Array<float>({0, 2, 4}).view());
  REQUIRE(none.guards_intact());
}

TEST_CASE("matmul carries NaN and infinity through zeros", "[cpu][gemm]") {
  std::mt19937 random(9);
  for (const double special : {double(std::numeric_limits<float>::quiet_NaN()), double(std::numeric_limits<float>::infinity())}) {
    Array<float> a({1, 20, 50}), b({1, 50, 40}), out({1, 20, 40});
    a.fill(0);
    b.randomize(random);
    b.data()[7 * 40 + 3] = static_cast<float>(special);
    run(out.view(), a.view(), b.view());
    for (std::int64_t i = 0; i < 20; ++i)
      for (std::int64_t j = 0; j < 40; ++j) REQUIRE(std::isnan(out.at(i * 40 + j)) == (j == 3));
    Array<float> relu({1, 20, 40});
    run(relu.view(), a.view(), b.view(), {}, tl::Activation::relu);
    REQUIRE(std::isnan(relu.at(3)));
  }
}

TEST_CASE("matmul's activations are those of the elementwise ops", "[cpu][gemm]") {
  std::mt19937 random(10);
  for (const std::int64_t n : {5, 32, 70})
    for (const std::int64_t k : {9, 800, 1800}) {
      const Layout layout = n == 32 ? Layout::plain : Layout::transposed;
      auto a = make_operand<float>(random, Layout::plain, 1, 17, k), b = make_operand<float>(random, layout, 1, k, n);
      Array<float> bias({n}), plain({1, 17, n}), relu({1, 17, n}), gelu({1, 17, n});
      bias.randomize(random);
      run(plain.view(), a.view, b.view, bias.view());
      run(relu.view(), a.view, b.view, bias.view(), tl::Activation::relu);
      run(gelu.view(), a.view, b.view, bias.view(), tl::Activation::gelu);
      for (std::int64_t i = 0; i < plain.numel(); ++i) {
        const double x = plain.at(i);
        REQUIRE(relu.at(i) == std::max(x, 0.0));
        REQUIRE(std::abs(gelu.at(i) - 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)))) <= 1e-6 * (1 + std::abs(x)));
      }
    }
}

TEST_CASE("matmul is bit-equal for any number of threads", "[cpu][gemm]") {
  std::mt19937 random(11);
  const std::int64_t shapes[][4] = {{1, 150, 130, 900}, {1, 64, 128, 2000}, {3, 40, 50, 60},   {1, 1, 700, 900},
                                    {1, 700, 1, 900},   {1, 600, 40, 33},   {1, 600, 40, 1500}};
  for (const auto& s : shapes) {
    const Layout layout = s[3] % 200 == 0 ? Layout::plain : Layout::transposed;
    auto a = make_operand<float>(random, Layout::plain, s[0], s[1], s[3]), b = make_operand<float>(random, layout, s[0], s[3], s[2]);
    Array<float> one({s[0], s[1], s[2]}), two = one, five = one;
    with_threads(1, [&] { run(one.view(), a.view, b.view); });
    with_threads(2, [&] { run(two.view(), a.view, b.view); });
    with_threads(5, [&] { run(five.view(), a.view, b.view); });
    INFO("m " << s[1] << " n " << s[2] << " k " << s[3]);
    REQUIRE(one.same_bits(two));
    REQUIRE(one.same_bits(five));
  }
}

TEST_CASE("integer matmul wraps around and boolean matmul is refused", "[cpu][gemm]") {
  Array<std::int32_t> a({1, 1, 2}), b({1, 2, 1}), out({1, 1, 1});
  a.data()[0] = a.data()[1] = std::numeric_limits<std::int32_t>::max();
  b.data()[0] = b.data()[1] = 1;
  run(out.view(), a.view(), b.view());
  REQUIRE(out.data()[0] == -2);
  bool one = true;
  const tl::View v(&one, tl::kBool, tl::cpu_device(), {1, 1, 1}, {1, 1, 1});
  REQUIRE_THROWS_AS(run(v, v, v), tl::DTypeError);
}
