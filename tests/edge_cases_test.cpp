// Misuse and odd inputs: every mistake is an exception that names the op; nothing is silently wrong.
#include "test_tensors.hpp"

#include <tensorlite/nn.hpp>

#include <limits>

using namespace tensorlite;
using Catch::Matchers::ContainsSubstring;

namespace {
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
}  // namespace

TEST_CASE("gradients of undefined tensors and of an input named twice", "[edge][autograd]") {
  CHECK_THROWS_AS(Tensor().set_grad({}), ValueError);
  const Tensor x = leaf(Tensor{2.f});
  const std::vector<Tensor> both = grad({x * x + x}, {x, x});
  CHECK_VALUES(both[0], {5});
  CHECK_VALUES(both[1], {5});
}

TEST_CASE("an expanded tensor is not changed in place", "[edge][inplace]") {
  Tensor base = zeros({1}), e = base.expand({3});
  CHECK_THROWS_AS(e.copy_(Tensor{1.f, 2.f, 3.f}), ValueError);
  CHECK_THROWS_AS(e.add_(1), ValueError);
  CHECK_THROWS_AS(e.mul_(ones({3})), ValueError);
  CHECK_THROWS_AS(e.masked_fill_(Tensor{true, false, true}, 9), ValueError);
  CHECK_THROWS_WITH(e.uniform_(), ContainsSubstring("uniform_: ") && ContainsSubstring("clone()"));
  CHECK_VALUES(base, {0});
  Tensor one = base.expand({1});
  CHECK_VALUES(one.add_(1), {1});
}

TEST_CASE("sizes, axes and bounds near the ends of 64 bits", "[edge][shape]") {
  const Tensor x = arange(5);
  CHECK_THROWS_AS(narrow(x, 0, 2, kMost), IndexError);
  CHECK_VALUES(x.slice(0, 4, {}, -kMost - 1), {4});
  CHECK_THROWS_AS(sum(ones({2, 3}), {std::int64_t{1} << 32}), IndexError);
  CHECK_THROWS_AS(permute(ones({2, 3}), {(std::int64_t{1} << 32) + 1, 0}), IndexError);
  CHECK_THROWS_AS(flip(x, {std::int64_t{1} << 32}), IndexError);
  CHECK_THROWS_AS(flip(x, {0, 0}), ValueError);
  const std::int64_t big = std::int64_t{1} << 33;
  CHECK_THROWS_AS(ones({1, 1}).expand({big, big}), ShapeError);
  CHECK_THROWS_AS(ones({1, 1}).expand({big, 1}) + ones({1, 1}).expand({1, big}), ShapeError);
  CHECK_THROWS_AS(zeros({0}).reshape({big, big}), ShapeError);
  CHECK_THROWS_AS(embedding(ones({2, 2}), zeros({1}, {.dtype = kInt64}).expand({std::int64_t{1} << 59})), Error);
}

TEST_CASE("creation of more numbers than there are bytes, and of numbers that do not fit", "[edge][creation]") {
  for (const std::int64_t count : {std::int64_t{1} << 60, std::int64_t{1} << 44}) {
    CHECK_THROWS_AS(linspace(0, 1, count), Error);
    CHECK_THROWS_AS(randperm(count), Error);
  }
  CHECK_THROWS_AS(arange(0, 1e300), ShapeError);
  CHECK_THROWS_AS(arange(-kMost, kMost), ShapeError);
  CHECK_THROWS_WITH(randint(0, 1000, {4}, {.dtype = kUInt8}), ContainsSubstring("randint: ") && ContainsSubstring("uint8"));
  CHECK_THROWS_AS(randint(kMost - 10, kMost, {3}), ValueError);
  CHECK(randint(0, 256, {4}, {.dtype = kUInt8}).dtype() == kUInt8);
  CHECK_VALUES(linspace(5, 1, 5), {5, 4, 3, 2, 1});
}

TEST_CASE("products over an axis of size 0 have values and gradients", "[edge][matmul]") {
  CHECK_VALUES(matmul(ones({2, 3, 0}), ones({0, 4})), std::vector<double>(24, 0));
  CHECK_VALUES(matmul(ones({2, 3, 0}), ones({0})), std::vector<double>(6, 0));
  const Tensor no_inputs = leaf(ones({2, 0})), no_outputs = leaf(ones({0, 2})), x = leaf(ones({3, 2}));
  linear(ones({3, 0}), no_inputs).sum().backward();
  CHECK(no_inputs.grad().sizes() == Dims({2, 0}));
  linear(x, no_outputs).sum().backward();
  CHECK_VALUES(x.grad(), std::vector<double>(6, 0));
  const Tensor empty_batch = leaf(ones({2, 3, 0}));
  matmul(empty_batch, ones({0, 4})).sum().backward();
  CHECK(empty_batch.grad().sizes() == Dims({2, 3, 0}));
}

TEST_CASE("numbers beside integer tensors are not cut off", "[edge][dtype]") {
  const Tensor mask{true, false, true}, x{1, 2, 3}, bytes = Tensor({44, 156, 5}, {.dtype = kUInt8});
  CHECK_VALUES(where(mask, x, 0.5), {1, 0.5, 3});
  CHECK_VALUES(where(mask, 0.5, x), {0.5, 2, 0.5});
  CHECK_VALUES(masked_fill(x, mask, 0.5), {0.5, 2, 0.5});
  CHECK(masked_fill(x, mask, 7).dtype() == kInt64);
  CHECK_THROWS_AS(x.clone().masked_fill_(mask, 0.5), DTypeError);
  CHECK_VALUES(clamp(x, 1.5, 2.5), {1.5, 2, 2.5});
  CHECK(clamp(x, 2, 3).dtype() == kInt64);
  CHECK_THROWS_AS(x.clone().clamp_(1.5, 2.5), DTypeError);
  CHECK_VALUES(bytes == -100, {0, 0, 0});
  CHECK_VALUES(bytes < 300, {1, 1, 1});
  CHECK_VALUES(Tensor({1}, {.dtype = kInt32}) < (std::int64_t{1} << 40), {1});
  CHECK_THROWS_WITH(pow(x, -1), ContainsSubstring("pow: int64 elements to the power -1"));
  CHECK_VALUES(pow(x, -1.0), {1, 0.5, 1.0 / 3});
}

TEST_CASE("gradients at the edges of std and pow are not NaN", "[edge][autograd]") {
  const Tensor constant = leaf(Tensor{2.f, 2.f}), x = leaf(Tensor{{1.f, 2.f}, {3.f, 5.f}}), exponent = leaf(Tensor{1.f, 2.f});
  tensorlite::std(constant).backward();
  CHECK_VALUES(constant.grad(), {0, 0});
  tensorlite::std(x, {1}).sum().backward();
  CHECK_VALUES(x.grad(), {-std::sqrt(0.5), std::sqrt(0.5), -std::sqrt(0.5), std::sqrt(0.5)});
  (pow(0, exponent) + exponent).sum().backward();
  CHECK_VALUES(exponent.grad(), {1, 1});
  const auto deviation = [](const std::vector<Tensor>& in) { return tensorlite::std(in[0], {0}); };
  CHECK(gradgradcheck(deviation, {leaf(x.to(kFloat64))}).message == "");
}

TEST_CASE("parameters of another shape or dtype are refused", "[edge][norm][conv]") {
  CHECK_THROWS_AS(layer_norm(ones({2, 3}), {2, 3}, ones({3, 2})), ShapeError);
  Tensor counts = zeros({2}, {.dtype = kInt64}), variance = ones({2});
  CHECK_THROWS_AS(batch_norm_train(ones({4, 2}), {}, {}, counts, variance), DTypeError);
  CHECK_THROWS_AS(conv_transpose2d(ones({1, 2, 2, 1}), ones({1, 0, 2, 1})), ShapeError);
}

TEST_CASE("a ninth dimension is a ShapeError", "[edge][shape]") {
  const Tensor full = zeros({1, 1, 1, 1, 1, 1, 1, 1}, {.dtype = kInt64});
  CHECK_THROWS_AS(zeros({1, 1, 1, 1, 1, 1, 1, 1, 1}), ShapeError);
  CHECK_THROWS_WITH(unsqueeze(full, 0), ContainsSubstring("at most 8 dimensions"));
  CHECK_THROWS_AS(stack({full}), ShapeError);
  CHECK_THROWS_AS(one_hot(full, 2), ShapeError);
  CHECK_THROWS_AS((Tensor{{{{{{{{{1}}}}}}}}}), ShapeError);
}

TEST_CASE("exponents and 16-bit floats print as in NumPy", "[edge][print]") {
  const auto text = [](const Tensor& t) {
    const std::string all = t.to_string();
    return all.substr(0, all.find(", shape"));
  };
  CHECK(text(Tensor{1e-5, 1.5}) == "tl.Tensor([1.0e-05 1.5e+00]");
  CHECK(text(Tensor{0.001, 1.001}) == "tl.Tensor([1.000e-03 1.001e+00]");
  CHECK(text(Tensor({1.0 / 3, 2e300, 1e-300}, {.dtype = kFloat64})) == "tl.Tensor([3.33333333e-001 2.00000000e+300 1.00000000e-300]");
  CHECK(text(Tensor({0.1, 1.5, 65504.}, {.dtype = kFloat16})) == "tl.Tensor([1.00e-01 1.50e+00 6.55e+04]");
  CHECK(text(Tensor({0.1, -1.5}, {.dtype = kFloat16})) == "tl.Tensor([ 0.1 -1.5]");
  CHECK(text(scalar(0.1, {.dtype = kBFloat16})) == "tl.Tensor(0.1");
  CHECK(text(Tensor{-0.0, std::numeric_limits<double>::quiet_NaN(), 1e-10}) == "tl.Tensor([-0.e+00     nan  1.e-10]");
}

TEST_CASE("an empty forward hook is refused", "[edge][nn]") {
  const nn::Linear layer(2, 2);
  CHECK_THROWS_AS(layer.register_forward_hook({}), ValueError);
}

TEST_CASE("strides, dilations, paddings and windows that would overflow", "[edge][conv][pool]") {
  const std::int64_t big = std::int64_t{1} << 61;
  const Tensor x = ones({1, 5, 5, 1});
  CHECK_THROWS_AS(conv2d(x, ones({1, 9, 9, 1}), {.dilation = big}), ValueError);
  CHECK_THROWS_AS(conv2d(x, ones({1, 2, 2, 1}), {.stride = kMost, .padding = Padding::same()}), ValueError);
  CHECK_THROWS_AS(conv_transpose2d(x, ones({1, 1, 1, 1}), {}, {.stride = 2 * big}), ValueError);
  CHECK_THROWS_AS(conv_transpose2d(x, ones({1, 2, 2, 1}), {}, {.padding = kMost}), ValueError);
  CHECK_THROWS_AS(max_pool2d(x, 5, {.dilation = 2 * big}), ValueError);
  CHECK_THROWS_AS(avg_pool2d(x, kMost / 2, {.padding = kMost / 4}), ValueError);
  CHECK_THROWS_WITH(max_pool2d(x, 2, {.stride = big}), ContainsSubstring("max_pool2d: stride must be positive and below 2^31"));
}

TEST_CASE("the mean of cross-entropy and nll_loss leaves ignored rows out, of many rows and of none") {
  const Device device = GENERATE(from_range(test_devices()));
  const DeviceScope scope(device);
  manual_seed(4);
  constexpr std::int64_t kRows = 40001;
  const Tensor logits = randn({kRows, 3}, {.dtype = kFloat64}).requires_grad_(), labels = randint(0, 3, {kRows});
  const Tensor mixed = where(rand({kRows}) < 0.3, full_like(labels, -100), labels);
  const Tensor counted = (mixed != -100).to(kFloat64), number = sum(counted);
  const Tensor loss = cross_entropy(logits, mixed);
  CHECK_VALUES(loss, sum(cross_entropy(logits, mixed, {.reduction = Reduction::none})) / number, 1e-12, 0);
  CHECK_VALUES(nll_loss(log_softmax(logits, 1), mixed), loss, 1e-12, 0);
  loss.backward();
  const Tensor expected = (softmax(logits.detach(), 1) - one_hot(labels, 3, kFloat64)) * unsqueeze(counted / number, 1);
  CHECK_VALUES(logits.grad(), expected, 1e-9, 1e-15);

  const Tensor few = leaf(logits.detach().narrow(0, 0, 4)), ignored = full({4}, -100);
  const Tensor nothing = cross_entropy(few, ignored);
  CHECK(std::isnan(nothing.item<double>()));
  nothing.backward();
  CHECK_VALUES(few.grad(), std::vector<double>(12, 0));
  CHECK(std::isnan(cross_entropy(zeros({0, 3}), zeros({0}, {.dtype = kInt64})).item<float>()));
  const auto mean_loss = [&](const std::vector<Tensor>& in) { return cross_entropy(in[0], Tensor{-100, 2, 0, 1}); };
  CHECK(gradgradcheck(mean_loss, {leaf(logits.detach().narrow(0, 0, 4))}).message == "");
}
