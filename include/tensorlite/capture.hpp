// L4: a training step recorded once as a graph of the GPU's work and run again as a whole, which spares the host the launch of every
// kernel.
//
//   auto step = capture([&](const std::vector<Tensor>& in) {
//     optimizer.zero_grad();
//     const Tensor loss = cross_entropy(net(in[0]), in[1]);
//     loss.backward();
//     optimizer.step();
//     return loss;
//   });
//   for (const auto& batch : loader) total.add_(step({batch.data, batch.target})[0]);
//
// Every call is one step. The first ones (`warmup`) run op by op, the next one records, and from then on the graph runs. The numbers are
// those of the same steps run op by op, random ones included: every run draws anew.
// What a run takes from the host: the inputs' values, the optimizers' learning rates and step counts, and the state of the random
// numbers. All else stays as it was when the step was recorded: sizes, numbers, options, branches, training mode.
// What a step may not do: wait for the device or read a result (item(), to_vector(), printing, clip_grad_norm_), copy from or to another
// device, run ops on another device, seed the random numbers. Such an op throws CaptureError, which names it and the remedy, when the step
// is recorded; the step can go on op by op.
// Tensors that the step uses must be there before it or made by it; their memory stays reserved until the captured step dies.
#pragma once

#include <tensorlite/tensor.hpp>

namespace tensorlite {

struct CaptureOptions {
  int warmup = 2;                     ///< first calls, run op by op: libraries choose algorithms, optimizers make their states; at least 1
  std::optional<Device> device = {};  ///< default: that of creation functions
};

/// A step with what was recorded of it. On a CPU every call runs the step op by op; all checks are the same.
/// Not for several threads at once; modules and optimizers that the step uses must outlive it.
class TL_API CapturedStep {
 public:
  using Step = std::function<std::vector<Tensor>(const std::vector<Tensor>& inputs)>;

  /// Throws ValueError for a warmup below 1.
  CapturedStep(Step step, const CaptureOptions& options);
  CapturedStep(CapturedStep&& other) noexcept;
  CapturedStep& operator=(CapturedStep&& other) noexcept;
  ~CapturedStep();

  /// One step. The inputs are copied into tensors of the step's own, from wherever they are; the results, detached, are the same tensors
  /// in every run of the graph, overwritten by the next: clone() what must last.
  /// Throws ShapeError or DTypeError for inputs unlike those of the first call (nothing has happened then), CaptureError when the step
  /// cannot be recorded, or when what it updates was replaced since.
  const std::vector<Tensor>& operator()(const std::vector<Tensor>& inputs = {});
  /// Whether calls run the graph.
  bool is_captured() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// `step` takes the inputs (const std::vector<Tensor>&) or nothing, and returns its results (std::vector<Tensor>), one Tensor or nothing.
template <class F> CapturedStep capture(F step, const CaptureOptions& options = {}) {
  return CapturedStep(
      [step = std::move(step)](const std::vector<Tensor>& inputs) mutable -> std::vector<Tensor> {
        const auto call = [&]() -> decltype(auto) {
          if constexpr (std::is_invocable_v<F&, const std::vector<Tensor>&>) return step(inputs);
          else return step();
        };
        if constexpr (std::is_void_v<decltype(call())>) return call(), std::vector<Tensor>{};
        else if constexpr (std::is_convertible_v<decltype(call()), Tensor>) return {call()};
        else return call();
      },
      options);
}

}  // namespace tensorlite
