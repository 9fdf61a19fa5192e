// Pieces of matrix products and convolutions.
#pragma once

#include "common.hpp"

namespace tensorlite::cuda {

/// x = activation(x + bias) on dense x; bias: absent or a vector along the last axis.
void add_bias(const Context& context, const View& x, const View& bias, Activation activation);

/// out[b] = a[b] * b[b], 3-D, any strides of a and b, every dtype: our own kernel, for integers and for machines without cuBLAS.
void simple_matmul(const Context& context, const View& out, const View& a, const View& b);

}  // namespace tensorlite::cuda
