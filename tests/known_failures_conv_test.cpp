// Inputs on which tensor libraries are known to have failed: convolution and pooling. Cases are stated in NCHW and OIHW.
#include "test_tensors.hpp"

#include <limits>

using namespace tensorlite;

namespace {
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

Tensor ohwi(const Tensor& oihw) { return oihw.permute({0, 2, 3, 1}); }
const Conv2dOptions kNchw{.format = DataFormat::NCHW};
}  // namespace

TEST_CASE("A01 conv2d backward where the size is not divisible by the stride", "[known][conv]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const Tensor x = leaf(count_up({1, 1, 6, 6})), w = leaf(count_up({1, 1, 3, 3}, 1));
  const Tensor y = conv2d(x, ohwi(w), {.stride = 2, .format = DataFormat::NCHW});
  CHECK_VALUES(y, {429, 519, 969, 1059});
  y.backward(ones_like(y));
  CHECK(x.grad().sizes() == Dims({1, 1, 6, 6}));
  CHECK_VALUES(x.grad(),
               {1, 2, 4, 2, 3, 0, 4, 5, 10, 5, 6, 0, 8, 10, 20, 10, 12, 0, 4, 5, 10, 5, 6, 0, 7, 8, 16, 8, 9, 0, 0, 0, 0, 0, 0, 0});
  CHECK_VALUES(w.grad(), {28, 32, 36, 52, 56, 60, 76, 80, 84});
}

TEST_CASE("A05 conv2d backward with a kernel that is a transposed view", "[known][conv]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const Tensor x = leaf(count_up({1, 2, 3, 3}, -8)), base = leaf(count_up({2, 2, 2, 2}, -7));
  const Tensor y = conv2d(x, ohwi(base.transpose(0, 1)), kNchw);
  CHECK_VALUES(y, {176, 164, 140, 128, 128, 148, 188, 208});
  const Tensor loss = (y * y).sum();
  CHECK(loss.item<float>() == 210752);
  loss.backward();
  CHECK_VALUES(x.grad(),
               {-3232, -5808, -2560, -5104, -8816, -3680, -1776, -2816, -1024, 1632, 4048, 2432, 5008, 11664, 6688, 3472, 7808, 4352});
  CHECK_VALUES(base.grad(), {-7536, -6320, -3888, -2672, -7664, -6320, -3632, -2288, 3408, 4624, 7056, 8272, 4432, 5776, 8464, 9808});
}

TEST_CASE("A08 max-pool padding never wins", "[known][pool]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const Tensor x = leaf(full({1, 2, 2, 1}, -1.f));
  const Tensor y = max_pool2d(x, 2, {.stride = 2, .padding = 1});
  CHECK_VALUES(y, {-1, -1, -1, -1});
  y.backward(ones_like(y));
  CHECK_VALUES(x.grad(), {1, 1, 1, 1});
}

TEST_CASE("A09 max-pool propagates NaN from any place in any channel", "[known][pool]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  for (std::int64_t channels = 1; channels <= 17; ++channels) {
    for (int place = 0; place < 4; ++place) {
      std::vector<float> window = {3, 5, 1, 2};
      window[static_cast<std::size_t>(place)] = static_cast<float>(kNan);
      const Tensor x = from_vector(window, {1, 2, 2, 1}).expand({1, 2, 2, channels});
      CHECK_VALUES(max_pool2d(x, 2), std::vector<double>(static_cast<std::size_t>(channels), kNan));
    }
  }
}

TEST_CASE("A10 max-pool of a window of -inf picks its first element", "[known][pool]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const Tensor x = leaf(full({1, 2, 2, 1}, -kInf));
  const Tensor y = max_pool2d(x, 2);
  CHECK_VALUES(y, {-kInf});
  y.backward(ones_like(y));
  CHECK_VALUES(x.grad(), {1, 0, 0, 0});
}

TEST_CASE("A11 avg-pool divides by what the rounding and padding rules say", "[known][pool]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const Tensor row = Tensor{2.f, 4.f, 6.f, 8.f, 11.f}.reshape({1, 1, 5, 1});
  CHECK_VALUES(avg_pool2d(row, {1, 2}, {.rounding = Rounding::ceil}), {3, 7, 11});
  const Tensor x = count_up({1, 6, 6, 1});
  CHECK_VALUES(avg_pool2d(x, 3, {.stride = 2, .padding = 1, .rounding = Rounding::ceil}),
               {1.5555556, 3.3333333, 4.6666667, 2.6666667, 8.3333333, 14, 16, 8.5, 16.333333, 26, 28, 14.5, 10.166667, 16, 17, 8.75});
  CHECK_VALUES(avg_pool2d(x, 3, {.stride = 2, .padding = 1, .rounding = Rounding::ceil, .count_include_pad = false}),
               {3.5, 5, 7, 8, 12.5, 14, 16, 17, 24.5, 26, 28, 29, 30.5, 32, 34, 35});
}

TEST_CASE("A30 same padding puts the odd pixel at the bottom and right", "[known][conv]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const Tensor y = conv2d(count_up({1, 6, 6, 1}), ones({1, 3, 3, 1}), {.stride = 2, .padding = Padding::same()});
  CHECK_VALUES(y, {63, 81, 63, 171, 189, 135, 168, 180, 126});
  CHECK(max_pool2d(rand({1, 16, 16, 1}), 2, {.stride = 1, .padding = Padding::same()}).sizes() == Dims({1, 16, 16, 1}));
}

TEST_CASE("A31 depthwise conv2d with a stride: gradients", "[known][conv]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const Tensor x = leaf(count_up({1, 4, 4, 4}, -20)), w = leaf(count_up({4, 1, 3, 3}, 0, 0.5));
  const Tensor y = conv2d(x, ohwi(w), {.stride = 2, .padding = 1, .groups = 4, .format = DataFormat::NCHW});
  CHECK_VALUES(y.select(1, 0), {-203.5, -253, -130.5, -141});
  CHECK_VALUES(y.select(1, 3), {2019.5, 3131, 3474, 5340});
  y.backward(ones_like(y));
  CHECK_VALUES(x.grad().select(1, 0), {2, 4, 2, 2.5, 4, 8, 4, 5, 2, 4, 2, 2.5, 3.5, 7, 3.5, 4});
  CHECK_VALUES(x.grad().select(1, 3), {15.5, 31, 15.5, 16, 31, 62, 31, 32, 15.5, 31, 15.5, 16, 17, 34, 17, 17.5});
  CHECK_VALUES(w.grad().select(0, 0), {-15, -30, -28, -30, -60, -56, -22, -44, -40});
  CHECK_VALUES(w.grad().select(0, 1), {1, 2, 4, 2, 4, 8, 10, 20, 24});
  CHECK_VALUES(w.grad().select(0, 3), {33, 66, 68, 66, 132, 136, 74, 148, 152});
}

TEST_CASE("A32 an empty batch goes through forward and backward", "[known][conv]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const Tensor x = leaf(zeros({0, 3, 5, 5})), w = leaf(rand({4, 3, 3, 3})), b = leaf(rand({4}));
  const Tensor y = conv2d(x, ohwi(w), b, kNchw);
  CHECK(y.sizes() == Dims({0, 4, 3, 3}));
  y.sum().backward();
  CHECK(x.grad().sizes() == Dims({0, 3, 5, 5}));
  CHECK_VALUES(w.grad(), std::vector<double>(108, 0));
  CHECK_VALUES(b.grad(), {0, 0, 0, 0});
  w.set_grad(ones_like(w));  // accumulation leaves what is there
  conv2d(x, ohwi(w), b, kNchw).sum().backward();
  CHECK_VALUES(w.grad(), std::vector<double>(108, 1));
  CHECK(max_pool2d(zeros({0, 4, 4, 2}), 2).sizes() == Dims({0, 2, 2, 2}));
  CHECK(avg_pool2d(zeros({0, 4, 4, 2}), 2).sizes() == Dims({0, 2, 2, 2}));
  CHECK(batch_norm_eval(zeros({0, 3}), ones({3}), zeros({3}), zeros({3}), ones({3})).sizes() == Dims({0, 3}));
  CHECK(linear(zeros({0, 3}), rand({2, 3}), rand({2})).sizes() == Dims({0, 2}));
}

TEST_CASE("A33 a patch matrix of more than 2^31 elements is never built", "[known][conv][large]") {
  const Device device = GENERATE(from_range(test_devices()));
  if (config::get_memory_info(short_name(device)).limit < (std::int64_t{9} << 28)) return;  // input and result take 1.1 GB
  const DeviceScope scope(device);
  const Tensor y = conv2d(ones({1, 2800, 2800, 32}), ones({1, 3, 3, 32}), {.padding = 1});
  const Tensor image = y.reshape({2800, 2800});
  CHECK(image.slice(0, 1, 2799).slice(1, 1, 2799).min().item<float>() == 288);
  CHECK(image.slice(0, 1, 2799).slice(1, 1, 2799).max().item<float>() == 288);
  for (const Tensor& edge : {image.select(0, 0), image.select(0, 2799), image.select(1, 0), image.select(1, 2799)}) {
    CHECK(edge.slice(0, 1, 2799).min().item<float>() == 192);
    CHECK(edge.slice(0, 1, 2799).max().item<float>() == 192);
    CHECK(edge[0].item<float>() == 128);
    CHECK(edge[-1].item<float>() == 128);
  }
}

TEST_CASE("A54 grids beyond 65,535 blocks and empty tensors", "[known][launch]") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const Tensor rows = rand({70000, 3}), index = (arange(0, 70000) * 7919).to(kInt64);
  const Tensor order = remainder(index, full({}, 70000));
  CHECK_VALUES(index_select(rows, 0, order)[123], values(rows[123 * 7919 % 70000]));
  for (const Dims& sizes : {Dims{70000, 2, 2, 1}, Dims{1, 2, 2, 70000}}) {
    const Tensor x = randn(sizes), host = x.cpu();
    const Tensor y = max_pool2d(x, 2), s = softmax(x, -1), b = x + ones({sizes[3]});
    const DeviceScope cpu("/CPU:0");
    CHECK_VALUES(y, max_pool2d(host, 2));
    CHECK_VALUES(s, softmax(host, -1));
    CHECK_VALUES(b, host + 1);
  }
  const Tensor empty_one = zeros({0, 4});
  CHECK(exp(empty_one).numel() == 0);
  CHECK((empty_one + empty_one).numel() == 0);
  CHECK(softmax(empty_one, 1).numel() == 0);
  CHECK_VALUES(ones({2}) + ones({2}), {2, 2});
}
