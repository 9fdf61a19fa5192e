// Private: what a thread keeps while it captures a step (tensorlite/capture.hpp), and what every run of the graph has to refresh.
#pragma once

#include "graph_memory.hpp"

#include <tensorlite/autograd.hpp>

namespace tensorlite::runtime {

/// A recorded call of an optimizer.
class RecordedUpdate {
 public:
  virtual ~RecordedUpdate() = default;
  /// Throws CaptureError when the optimizer no longer has what was recorded.
  virtual void check() const = 0;
  /// Counts one step; its hyperparameters.
  virtual OptimizerParams advance() = 0;
};

/// A leaf whose gradient a recorded step drops, makes or adds to.
struct RecordedLeaf {
  detail::Ref<detail::TensorImpl> leaf;
  Tensor before = {}, after = {};  ///< its gradient before the recording and at its end
  bool accumulates = false;        ///< the step adds to the gradient that was there before
};

struct Recording {
  Device device;
  Slot* slot = nullptr;
  GraphMemory* memory = nullptr;
  void* graph = nullptr;    ///< the backend's
  std::uint64_t draws = 0;  ///< of random numbers so far
  std::vector<std::unique_ptr<RecordedUpdate>> updates = {};
  std::vector<RecordedLeaf> leaves = {};

  /// Throws CaptureError unless the op runs on the device of the recording.
  void check_place(const detail::OpPlace& place) const;
  void use(const std::vector<View>& views);
  /// Call before a leaf's gradient changes for the first time.
  RecordedLeaf& note(detail::TensorImpl& leaf);
};

[[noreturn]] void refuse_capture(const char* op, const std::string& why);
/// Throws CaptureError for `op` when the calling thread is recording.
inline void refuse_in_capture(const char* op, const char* why) {
  if (recording()) [[unlikely]]
    refuse_capture(op, why);
}
/// `count` successive draws of random numbers: the first one's key.
PhiloxKey take_draws(std::uint64_t count);

}  // namespace tensorlite::runtime
