// L4: a table of a network's layers.
#pragma once

#include <tensorlite/nn/module.hpp>

namespace tensorlite::nn {

struct SummaryOptions {
  DType dtype = kFloat32;             ///< of the input
  std::optional<Device> device = {};  ///< of the input; default: that of the first parameter
};

/// Layers in the order in which they ran, the shapes they gave and their parameters, with totals. Runs forward once on zeros of
/// `input_shape` (batch included), in evaluation and unrecorded; every module's mode is as before afterwards.
TL_API std::string summary(Module& model, const Dims& input_shape, const SummaryOptions& options = {});

}  // namespace tensorlite::nn
