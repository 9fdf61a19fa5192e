// L4: Sequential.
#pragma once

#include <tensorlite/nn/module.hpp>

namespace tensorlite::nn {

/// Layers one after another, named "0", "1"...: modules, and functions from a Tensor to a Tensor.
///   nn::Sequential net(nn::Conv2d{1, 8, 3}, [](const Tensor& x) { return relu(x); }, nn::Flatten{}, nn::Linear{5408, 10});
class TL_API Sequential : public Module {
 public:
  template <class... Layers>
  requires(!(sizeof...(Layers) == 1 &&
             (std::is_base_of_v<Sequential, std::decay_t<Layers>> && ...))) explicit Sequential(Layers&&... layers)
      : Module("Sequential") {
    (push_back(std::forward<Layers>(layers)), ...);
  }

  template <class Layer> void push_back(Layer&& layer) { push_back(std::to_string(layers_.size()), std::forward<Layer>(layer)); }
  template <class Layer> void push_back(const std::string& name, Layer layer) {
    if constexpr (std::is_base_of_v<Module, Layer>) {
      const auto module = std::make_shared<Layer>(std::move(layer));
      register_module(name, *module);
      layers_.emplace_back([module](const Tensor& x) { return (*module)(x); });
    } else {
      layers_.emplace_back(std::move(layer));
    }
  }
  std::size_t size() const { return layers_.size(); }
  Tensor forward(const Tensor& x) const override {
    Tensor y = x;
    for (const auto& layer : layers_) y = layer(y);
    return y;
  }

 private:
  std::vector<std::function<Tensor(const Tensor&)>> layers_;
};

}  // namespace tensorlite::nn
