// cuDNN's graph API, opened at the first convolution: descriptors, operation graphs and the plans that can run them.
#pragma once

#if defined(TL_HAS_CUDNN)

#include "common.hpp"
#include "library.hpp"

#include <cudnn_graph.h>

#include <array>
#include <functional>
#include <memory>
#include <mutex>

namespace tensorlite::cuda {

// X(member, symbol)
#define TL_CUDNN_FUNCTIONS(X)                          \
  X(version, cudnnGetVersion)                          \
  X(create, cudnnCreate)                               \
  X(set_stream, cudnnSetStream)                        \
  X(status_text, cudnnGetErrorString)                  \
  X(descriptor_create, cudnnBackendCreateDescriptor)   \
  X(descriptor_destroy, cudnnBackendDestroyDescriptor) \
  X(descriptor_finalize, cudnnBackendFinalize)         \
  X(descriptor_set, cudnnBackendSetAttribute)          \
  X(descriptor_get, cudnnBackendGetAttribute)          \
  X(execute, cudnnBackendExecute)

struct Cudnn {
  Library library{"libcudnn.so.9"};
  cudnnHandle_t handles[kMaxPhysical] = {};
  std::mutex mutex;     ///< held while a handle is used
  bool usable = false;  ///< until a part of the library turns out to be missing or of another version
#define TL_CUDNN_MEMBER(member, symbol) decltype(&::symbol) member = nullptr;
  TL_CUDNN_FUNCTIONS(TL_CUDNN_MEMBER)
#undef TL_CUDNN_MEMBER

  Cudnn();
  /// Of the context's device; null when cuDNN cannot be used. The first refusal prints one line that says why.
  cudnnHandle_t handle(const Context& context);
  /// From now on convolutions do without cuDNN.
  void give_up(const std::string& why);
};
Cudnn& cudnn();

/// Thrown inside this backend alone: cuDNN has said no, and another way is tried.
struct CudnnRefusal {
  cudnnStatus_t status;
};

/// One descriptor. Members throw CudnnRefusal.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type);
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  cudnnBackendDescriptor_t raw() const { return raw_; }

  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count, const void* values);
  template <class T> Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    return set(name, type, 1, &value);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, const Descriptor& value) {
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, value.raw_);
  }
  Descriptor& finalize();
  std::int64_t get_int64(cudnnBackendAttributeName_t name) const;

 private:
  cudnnBackendDescriptor_t raw_ = nullptr;
};

/// What a plan must and must not do.
struct PlanRules {
  bool no_tensor_cores = false, no_down_conversion = false, deterministic = false;
  std::size_t workspace_limit = 0;
  int most = 8;  ///< plans that are measured
};

/// A graph that can be run. Keeps its descriptors, null while there is no plan.
struct CudnnPlan {
  std::vector<Descriptor> parts;
  std::unique_ptr<Descriptor> plan;
  std::size_t workspace = 0;
  float time = 0;                            ///< milliseconds, where it was measured
  mutable std::unique_ptr<Descriptor> pack;  ///< of the last call, kept as calls often repeat their addresses
  mutable std::array<void*, 5> addresses{};
  bool own = false;     ///< no plan: our own tiles are faster
  bool turned = false;  ///< computes the opposite direction's convolution with the kernel turned by 180 degrees
};

/// The first plan (of the heuristics, then of the fallbacks) that keeps the rules; with `measure` (milliseconds, negative for a failure)
/// the fastest of the first `most`.
/// `plan` of the result is null when there is none.
CudnnPlan find_plan(cudnnHandle_t handle, Descriptor&& graph, const PlanRules& rules,
                    const std::function<float(CudnnPlan&, float best)>& measure);

}  // namespace tensorlite::cuda

#endif
