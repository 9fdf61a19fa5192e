// L4: initialisers. Each fills its tensor in place, unrecorded, and returns it. The numbers depend on the seed alone, not on the device.
#pragma once

#include <tensorlite/tensor.hpp>

namespace tensorlite::nn {

/// How a layer draws its first weights. pytorch: weight and bias uniform in +-1/sqrt(fan_in). keras: glorot_uniform, zero bias.
/// he: he_uniform (for ReLU), zero bias.
enum class Init : std::uint8_t { pytorch, keras, he };

enum class FanMode : std::uint8_t { fan_in, fan_out };
enum class Nonlinearity : std::uint8_t { linear, sigmoid, tanh, relu, leaky_relu, selu };

namespace init {

struct KaimingOptions {
  double a = 0;  ///< slope of leaky_relu below 0
  FanMode mode = FanMode::fan_in;
  Nonlinearity nonlinearity = Nonlinearity::leaky_relu;
};
struct TruncatedOptions {
  double mean = 0, deviation = 1;
  double low = -2, high = 2;  ///< in the units of the values, not in deviations
};

/// Inputs and outputs of one unit. Shapes: [out, in], or [out, ..., in] with the axes between as a receptive field (OHWI kernels).
/// Throws ShapeError below two axes.
struct Fans {
  std::int64_t in = 0, out = 0;
};
TL_API Fans fans(const Dims& sizes);
/// The factor that keeps variances through a nonlinearity. Source: torch.nn.init.calculate_gain.
TL_API double gain(Nonlinearity nonlinearity, double slope = 0.01);

TL_API Tensor constant_(Tensor t, Scalar value);
inline Tensor zeros_(Tensor t) { return constant_(std::move(t), 0); }
inline Tensor ones_(Tensor t) { return constant_(std::move(t), 1); }
TL_API Tensor uniform_(Tensor t, double low = 0, double high = 1);
TL_API Tensor normal_(Tensor t, double mean = 0, double deviation = 1);
/// Normal, but values outside [low, high] are never drawn. Throws ValueError unless low < high.
TL_API Tensor truncated_normal_(Tensor t, const TruncatedOptions& options = {});
/// Uniform in +-gain * sqrt(3 / fan), normal of deviation gain / sqrt(fan). Throws ShapeError, ValueError (fan 0).
TL_API Tensor kaiming_uniform_(Tensor t, const KaimingOptions& options = {});
TL_API Tensor kaiming_normal_(Tensor t, const KaimingOptions& options = {});
/// Glorot: uniform in +-gain * sqrt(6 / (fan_in + fan_out)), normal of deviation gain * sqrt(2 / (fan_in + fan_out)).
TL_API Tensor xavier_uniform_(Tensor t, double gain = 1);
TL_API Tensor xavier_normal_(Tensor t, double gain = 1);
/// Rows (or columns, where there are fewer) orthonormal, times gain; axes after the first count as one. Throws ShapeError below two axes.
TL_API Tensor orthogonal_(Tensor t, double gain = 1);

/// First weight and bias (or undefined) of a linear or convolution layer.
TL_API void layer_(Init kind, const Tensor& weight, const Tensor& bias);

}  // namespace init
}  // namespace tensorlite::nn
