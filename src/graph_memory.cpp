#include "graph_memory.hpp"

#include <algorithm>

namespace tensorlite::runtime {

namespace {

detail::PoolOptions options_for(const Slot& slot) { return {.granularity = slot.backend->granularity}; }

}  // namespace

GraphMemory::GraphMemory(Slot& slot)
    : own_({.map = [this, &slot](std::size_t bytes) -> void* {
              void* data = slot.pool->allocate(bytes);
              if (data) regions_.push_back({static_cast<char*>(data), bytes});
              return data;
            },
            .unmap = [&slot](void* data, std::size_t) { slot.pool->release(data); }},
           options_for(slot)) {}

bool GraphMemory::owns(const void* data) const {
  return std::any_of(regions_.begin(), regions_.end(), [data](const Region& r) { return data >= r.data && data < r.data + r.bytes; });
}

bool GraphMemory::release(void* data) { return owns(data) && own_.release(data); }

void GraphMemory::use(const View& view) {
  if (view.numel() > 0 && !owns(view.data)) outside_.insert(static_cast<char*>(view.data));
}

bool GraphMemory::keep(void* data, std::size_t bytes) {
  const auto used = outside_.lower_bound(static_cast<char*>(data));
  if (abandoned_ || used == outside_.end() || *used >= static_cast<char*>(data) + bytes) return false;
  kept_.push_back(data);
  return true;
}

std::vector<void*> GraphMemory::abandon() {
  abandoned_ = true;
  return std::move(kept_);
}

namespace {

/// Call with the mutex held.
void drop_idle(Slot& slot) {
  std::erase_if(slot.graph_memories, [](const auto& memory) { return memory->is_idle(); });
  slot.graph_count.store(static_cast<int>(slot.graph_memories.size()));
}

}  // namespace

GraphMemory& open_graph_memory(Slot& slot) {
  std::lock_guard guard(slot.graph_mutex);
  slot.graph_memories.push_back(std::make_shared<GraphMemory>(slot));
  slot.graph_count.store(static_cast<int>(slot.graph_memories.size()));
  return *slot.graph_memories.back();
}

void close_graph_memory(Slot& slot, GraphMemory& memory) {
  std::vector<void*> kept;
  {
    std::lock_guard guard(slot.graph_mutex);
    kept = memory.abandon();
    drop_idle(slot);
  }
  for (void* data : kept) detail::release(slot.device, data);  // another graph may use it, too
}

bool release_to_graphs(Slot& slot, void* data) {
  std::lock_guard guard(slot.graph_mutex);
  for (const auto& memory : slot.graph_memories)
    if (memory->release(data)) {
      drop_idle(slot);
      return true;
    }
  const std::size_t bytes = slot.pool->size_of(data);
  return bytes > 0 &&
         std::any_of(slot.graph_memories.begin(), slot.graph_memories.end(), [&](const auto& memory) { return memory->keep(data, bytes); });
}

}  // namespace tensorlite::runtime
