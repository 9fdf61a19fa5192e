// Products and convolutions whose algorithm is chosen by measuring: the same values, whatever is chosen.
#include "own_process.hpp"
#include "temp_folder.hpp"
#include "test_tensors.hpp"

using namespace tensorlite;

namespace {

struct Autotuned {
  Autotuned() { config::set_autotune(true); }
  ~Autotuned() { config::set_autotune(false); }
};

struct ConvShape {
  Dims image, weight;
  Conv2dOptions options;
};

/// conv2d's result and the gradients of image, weight and bias.
std::vector<Tensor> convolve(const ConvShape& shape, DType dtype, bool with_bias) {
  manual_seed(7);
  const auto make = [&](const Dims& sizes) { return leaf(randn(sizes).to(dtype)); };
  const Tensor x = make(shape.image), w = make(shape.weight), b = with_bias ? make({shape.weight[0]}) : Tensor();
  const Tensor y = conv2d(x, w, b, shape.options);
  y.backward(randn(y.sizes()).to(dtype));
  std::vector<Tensor> all{y.detach(), x.grad(), w.grad()};
  if (with_bias) all.push_back(b.grad());
  return all;
}

}  // namespace

namespace {

const std::vector<ConvShape>& conv_shapes() {
  static const std::vector<ConvShape> shapes{{{3, 9, 8, 4}, {8, 3, 3, 4}, {}},
                                             {{2, 12, 10, 8}, {16, 5, 5, 8}, {.padding = 2}},
                                             {{2, 11, 9, 4}, {4, 3, 2, 4}, {.padding = {0, 2, 1, 0}}},
                                             {{2, 13, 12, 4}, {8, 3, 3, 4}, {.padding = 1, .dilation = 2}},
                                             {{2, 9, 9, 4}, {4, 3, 3, 4}, {.padding = 4}},  // more padding than the kernel reaches
                                             {{2, 12, 12, 4}, {8, 3, 3, 4}, {.stride = 2, .padding = 1}},
                                             {{2, 8, 8, 6}, {6, 3, 3, 2}, {.padding = 1, .groups = 3}},
                                             {{4, 16, 16, 3}, {16, 7, 7, 3}, {.stride = 2, .padding = 3}},
                                             {{2, 10, 10, 1}, {32, 3, 3, 1}, {.activation = Activation::relu}},
                                             {{2, 14, 14, 64}, {132, 3, 3, 64}, {.padding = 1}}};
  return shapes;
}

void check_convolution(const ConvShape& shape, Device device, bool with_bias) {
  std::vector<Tensor> expected;
  {
    const DeviceScope cpu(cpu_device());
    expected = convolve(shape, kFloat64, with_bias);
  }
  const DeviceScope scope(device);
  const std::vector<Tensor> got = convolve(shape, kFloat32, with_bias);
  for (std::size_t i = 0; i < got.size(); ++i) {
    INFO(detail::concat("image ", shape.image, ", weight ", shape.weight, ", result ", i));
    CHECK_VALUES(got[i], expected[i], 1e-4, 2e-4);
  }
}

}  // namespace

TEST_CASE("convolutions agree with float64 on the CPU, whichever algorithm is chosen") {
  const Device device = GENERATE(from_range(test_devices()));
  const bool with_bias = GENERATE(false, true), autotune = GENERATE(false, true);
  std::optional<Autotuned> on;
  if (autotune) on.emplace();
  for (const ConvShape& shape : conv_shapes()) check_convolution(shape, device, with_bias);
}

TEST_CASE("convolutions agree with float64 on the CPU where cuDNN is not there") {
  if (std::getenv("TENSORLITE_CUDA_PLUGIN") || config::list_physical_devices("GPU").empty()) return;
  const TempFolder folder;
  folder.write("libcudnn.so.9", "");
  const char* others = std::getenv("LD_LIBRARY_PATH");
  if (auto child =
          own_process({{"LD_LIBRARY_PATH", folder.path() + ":" + (others ? others : "")}, {"TENSORLITE_FORCE_GPU_ALLOW_GROWTH", "true"}})) {
    CHECK_THAT(child->output, Catch::Matchers::ContainsSubstring("convolutions do without cuDNN"));
    return;
  }
  for (const ConvShape& shape : conv_shapes())
    for (const bool with_bias : {false, true}) check_convolution(shape, gpu_device(), with_bias);
}

TEST_CASE("products agree with float64 on the CPU, whichever algorithm is chosen") {
  const Device device = GENERATE(from_range(test_devices()));
  const DType dtype = GENERATE(kFloat32, kBFloat16);
  const double precision = dtype == kFloat32 ? 1e-4 : 5e-2;
  for (const auto& [m, n, k] : {std::array{64, 10, 1024}, {33, 17, 129}, {128, 256, 64}, {1, 40, 300}}) {
    manual_seed(8);
    const Tensor a = randn({m, k}, {.device = cpu_device()}), w = randn({n, k}, {.device = cpu_device()}),
                 b = randn({n}, {.device = cpu_device()});
    Tensor expected;
    {
      const DeviceScope cpu(cpu_device());
      const auto wide = [&](const Tensor& x) { return x.to(dtype).to(kFloat64); };
      expected = relu(linear(wide(a), wide(w), wide(b)));
    }
    const DeviceScope scope(device);
    const Autotuned on;
    INFO(m << " x " << n << " x " << k);
    for (int call = 0; call < 2; ++call)
      CHECK_VALUES(linear(a.to(dtype), w.to(dtype), b.to(dtype), Activation::relu), expected, precision, precision * 4);
  }
}

TEST_CASE("deterministic mode chooses without measuring and repeats its bits") {
  const DeviceScope scope(GENERATE(from_range(test_devices())));
  const ConvShape shape{{8, 14, 14, 16}, {16, 3, 3, 16}, {.padding = 1}};
  config::set_deterministic(true);
  const Autotuned on;
  const std::vector<Tensor> first = convolve(shape, kFloat32, true), second = convolve(shape, kFloat32, true);
  config::set_deterministic(false);
  for (std::size_t i = 0; i < first.size(); ++i) CHECK_VALUES(first[i], second[i], 0, 0);
}
