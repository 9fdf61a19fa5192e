// Private: the memory of recorded graphs. A graph's kernels use the same addresses in every run, so what they use stays reserved while the
// graph lives, whatever tensors die meanwhile.
#pragma once

#include "runtime_state.hpp"

#include <set>

namespace tensorlite::runtime {

/// Memory of one graph: its own, in regions of the device's pool, handed out while it is recorded; and blocks of the pool that were there
/// before and that its kernels use. All functions but the constructor are called with the slot's graph_mutex held.
class GraphMemory {
 public:
  explicit GraphMemory(Slot& slot);

  /// Null when the pool has no more.
  void* allocate(std::size_t bytes) { return own_.allocate(bytes); }
  /// Takes back what allocate gave; false for any other pointer.
  bool release(void* data);
  /// A recorded kernel uses this view.
  void use(const View& view);
  /// Whether the graph uses memory in this block of the pool; then the block is kept until the graph dies.
  bool keep(void* data, std::size_t bytes);
  /// The graph is dead: the blocks that were kept for it.
  std::vector<void*> abandon();
  /// Whether nobody needs it any more.
  bool is_idle() { return abandoned_ && own_.stats().in_use == 0; }

 private:
  struct Region {
    char* data;
    std::size_t bytes;
  };
  bool owns(const void* data) const;

  std::vector<Region> regions_;
  detail::CachingAllocator own_;
  std::set<char*> outside_;
  std::vector<void*> kept_;
  bool abandoned_ = false;
};

GraphMemory& open_graph_memory(Slot& slot);
/// After the death of its graph. Tensors may still lie in it: then it goes with the last of them.
void close_graph_memory(Slot& slot, GraphMemory& memory);
/// Whether a block of the device belongs to a graph's memory or was kept for a graph, and so does not go back to the pool.
bool release_to_graphs(Slot& slot, void* data);

}  // namespace tensorlite::runtime
