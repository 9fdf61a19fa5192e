// A pool of device memory: best fit with immediate coalescing over regions that a source maps and unmaps. The only allocator of the
// library: every device, CPUs too, has one. Never touches the memory it hands out.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace tensorlite::detail {

/// "24 B", "1.5 KiB (1536 B)".
inline std::string format_bytes(std::uint64_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + " B";
  constexpr const char* units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  int unit = 0;
  for (; value >= 1024 && unit < 5; ++unit) value /= 1024;
  const auto tenths = static_cast<std::uint64_t>(value * 10 + 0.5);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " " + units[unit] + " (" + std::to_string(bytes) + " B)";
}

/// A lock that costs one atomic exchange when nobody else holds it; waiters yield.
class SpinLock {
 public:
  void lock() {
    for (int spins = 0; locked_.exchange(true, std::memory_order_acquire);) {
      while (locked_.load(std::memory_order_relaxed))
        if (++spins > 1000) std::this_thread::yield();
    }
  }
  void unlock() { locked_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> locked_{false};
};

/// Where a pool gets its memory: map returns null when the driver refuses; unmap gets exactly what map gave.
struct RegionSource {
  std::function<void*(std::size_t bytes)> map;
  std::function<void(void* data, std::size_t bytes)> unmap;
};

struct PoolOptions {
  std::size_t granularity = 256;             ///< of allocations, a power of two
  std::size_t region_granularity = 2 << 20;  ///< of regions
  std::size_t limit = std::numeric_limits<std::size_t>::max();
  bool growth = true;          ///< map as needed; false: the whole limit at first use
  bool merge_regions = false;  ///< blocks may span regions that adjoin
  bool quick_lists = false;    ///< small freed blocks wait, unmerged, for the next request of their size
};

struct PoolStats {
  std::size_t in_use = 0, peak_in_use = 0, reserved = 0, peak_reserved = 0, limit = 0, largest_free_block = 0, largest_allocation = 0;
  std::int64_t allocations = 0;
};

class CachingAllocator {
 public:
  CachingAllocator(RegionSource source, PoolOptions options) : source_(std::move(source)), options_(options) {
    const std::size_t whole = options_.limit / options_.region_granularity * options_.region_granularity;
    options_.limit = whole ? whole : options_.region_granularity;
    stats_.limit = options_.limit;
  }
  ~CachingAllocator() {
    for (const Region& region : regions_) source_.unmap(region.data, region.size);
  }
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  /// Memory for `bytes`, aligned to the granularity; null when there is none even after wholly free regions were given back. 0 bytes: null.
  void* allocate(std::size_t bytes) {
    if (bytes == 0 || bytes > options_.limit) return nullptr;
    const std::size_t size = (bytes + options_.granularity - 1) & ~(options_.granularity - 1);
    std::lock_guard guard(lock_);
    if (QuickList* quick = quick_list(size); quick && quick->count > 0) return make_live(quick->blocks[--quick->count]);
    Block* block = find(size);
    if (!block && empty_quick_lists()) block = find(size);
    if (!block && size <= options_.limit - stats_.in_use) {
      if (extend(size) || (give_back() > 0 && extend(size))) block = find(size);
    }
    if (!block) return nullptr;
    return take(block, size);
  }

  /// Takes back what allocate gave. False, and nothing changed, for any other pointer (a foreign one, or one freed twice).
  bool release(void* data) {
    if (!data) return true;
    std::lock_guard guard(lock_);
    Block* block = live_.remove(static_cast<char*>(data));
    if (!block) return false;
    stats_.in_use -= block->size;
    QuickList* quick = quick_list(block->size);
    if (quick && quick->count < QuickList::kMost) quick->blocks[quick->count++] = block;
    else make_free(block);
    return true;
  }

  /// Bytes of a live block; 0 for any other pointer.
  std::size_t size_of(void* data) const {
    std::lock_guard guard(lock_);
    const Block* block = live_.find(static_cast<char*>(data));
    return block ? block->size : 0;
  }

  /// Gives wholly free regions back to the source; how many bytes.
  std::size_t trim() {
    std::lock_guard guard(lock_);
    return give_back();
  }

  PoolStats stats() {
    std::lock_guard guard(lock_);
    empty_quick_lists();
    PoolStats stats = stats_;
    if (bin_mask_) stats.largest_free_block = (*bins_[static_cast<std::size_t>(std::bit_width(bin_mask_) - 1)].rbegin())->size;
    return stats;
  }
  /// The peaks become the current values, the counters 0.
  void reset_stats() {
    std::lock_guard guard(lock_);
    stats_.peak_in_use = stats_.in_use;
    stats_.peak_reserved = stats_.reserved;
    stats_.allocations = 0;
    stats_.largest_allocation = 0;
  }

  /// The largest live blocks, at most `lines` lines of "  size x count", largest first.
  std::string largest_live(int lines) const {
    std::map<std::size_t, std::int64_t, std::greater<>> by_size;
    std::lock_guard guard(lock_);
    live_.for_each([&](const Block& block) { ++by_size[block.size]; });
    std::string text;
    for (const auto& [size, count] : by_size) {
      if (lines-- == 0) break;
      text += "\n  " + format_bytes(size) + " x " + std::to_string(count);
    }
    return text;
  }

  /// For fork(): holds the pool still while the process is copied.
  void lock() { lock_.lock(); }
  void unlock() { lock_.unlock(); }

 private:
  struct Block;
  struct BySizeThenAddress {
    bool operator()(const Block* a, const Block* b) const { return a->size != b->size ? a->size < b->size : a->data < b->data; }
    using is_transparent = void;
    bool operator()(const Block* a, std::size_t size) const { return a->size < size; }
  };
  using Bin = std::set<Block*, BySizeThenAddress>;
  /// A stretch of memory, free or in use. All blocks form one list in the order of their addresses.
  struct Block {
    char* data = nullptr;
    std::size_t size = 0;
    Block *previous = nullptr, *next = nullptr;
    bool free = false;
    bool starts_region = false;
    Bin::iterator position{};  ///< in its bin, while free
  };
  struct Region {
    char* data;
    std::size_t size;
  };

  /// Live blocks by address: open addressing with linear probing, so that a look-up touches one cache line.
  class LiveBlocks {
   public:
    void insert(Block* block) {
      if ((count_ + 1) * 2 > slots_.size()) grow();
      ++count_;
      place(block);
    }
    const Block* find(char* data) const {
      if (count_ == 0) return nullptr;
      std::size_t i = home(data);
      while (slots_[i] && slots_[i]->data != data) i = next(i);
      return slots_[i];
    }
    Block* remove(char* data) {
      if (count_ == 0) return nullptr;
      std::size_t i = home(data);
      for (; slots_[i]; i = next(i)) {
        if (slots_[i]->data == data) break;
      }
      Block* found = slots_[i];
      if (!found) return nullptr;
      // Entries behind the hole move up, so that no tombstone is needed.
      for (std::size_t j = next(i); slots_[j]; j = next(j)) {
        const std::size_t distance = (j - home(slots_[j]->data)) & (slots_.size() - 1);
        if (distance < ((j - i) & (slots_.size() - 1))) continue;
        slots_[i] = slots_[j];
        i = j;
      }
      slots_[i] = nullptr;
      --count_;
      return found;
    }
    template <class F> void for_each(F&& f) const {
      for (const Block* block : slots_)
        if (block) f(*block);
    }

   private:
    std::size_t next(std::size_t i) const { return (i + 1) & (slots_.size() - 1); }
    std::size_t home(const char* data) const {
      return (static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(data) >> 6) * 0x9e3779b97f4a7c15u) >> shift_;
    }
    void place(Block* block) {
      std::size_t i = home(block->data);
      while (slots_[i]) i = next(i);
      slots_[i] = block;
    }
    void grow() {
      std::vector<Block*> old(slots_.empty() ? 256 : slots_.size() * 2);
      old.swap(slots_);
      shift_ = 64 - std::countr_zero(slots_.size());
      for (Block* block : old)
        if (block) place(block);
    }
    std::vector<Block*> slots_;
    std::size_t count_ = 0;
    int shift_ = 56;
  };

  /// Freed blocks of one small size. Neither live nor free: neighbours do not merge with them.
  struct QuickList {
    static constexpr std::size_t kMost = 8;
    std::array<Block*, kMost> blocks;
    std::size_t count = 0;
  };

  static constexpr std::size_t kBins = 21, kQuickLists = 64;
  static constexpr std::size_t kFirstRegion = std::size_t{2} << 20, kAlwaysSplit = std::size_t{128} << 20;

  static std::size_t bin_of(std::size_t size) { return std::min(kBins - 1, static_cast<std::size_t>(std::bit_width(size >> 9))); }

  // --- free blocks

  void insert_free(Block* block) {
    const std::size_t bin = bin_of(block->size);
    block->free = true;
    bin_mask_ |= 1u << bin;
    if (spare_nodes_.empty()) {
      block->position = bins_[bin].insert(block).first;
      return;
    }
    spare_nodes_.back().value() = block;
    block->position = bins_[bin].insert(std::move(spare_nodes_.back())).position;
    spare_nodes_.pop_back();
  }
  void remove_free(Block* block) {
    const std::size_t bin = bin_of(block->size);
    spare_nodes_.push_back(bins_[bin].extract(block->position));
    block->free = false;
    if (bins_[bin].empty()) bin_mask_ &= ~(1u << bin);
  }
  /// Gives a free block new bounds; where its rank stays the same nothing else is touched.
  void resize_free(Block* block, char* data, std::size_t size) {
    const std::size_t bin = bin_of(block->size);
    const Block bounds{.data = data, .size = size};
    bool keeps_rank = bin == bin_of(size);
    if (keeps_rank && block->position != bins_[bin].begin()) keeps_rank = BySizeThenAddress{}(*std::prev(block->position), &bounds);
    if (keeps_rank && std::next(block->position) != bins_[bin].end())
      keeps_rank = BySizeThenAddress{}(&bounds, *std::next(block->position));
    if (!keeps_rank) remove_free(block);
    block->data = data;
    block->size = size;
    if (!keeps_rank) insert_free(block);
  }
  Block* find(std::size_t size) {
    for (std::uint32_t bins = bin_mask_ >> bin_of(size) << bin_of(size); bins; bins &= bins - 1) {
      const Bin& bin = bins_[static_cast<std::size_t>(std::countr_zero(bins))];
      const auto best = bin.lower_bound(size);
      if (best != bin.end()) return *best;
    }
    return nullptr;
  }

  QuickList* quick_list(std::size_t size) {
    const std::size_t units = size / options_.granularity;
    return options_.quick_lists && units <= kQuickLists ? &quick_lists_[units - 1] : nullptr;
  }
  /// Makes every waiting block free; whether there were any.
  bool empty_quick_lists() {
    bool any = false;
    for (QuickList& list : quick_lists_) {
      any = any || list.count > 0;
      while (list.count > 0) make_free(list.blocks[--list.count]);
    }
    return any;
  }

  // --- blocks in address order

  Block* new_block(char* data, std::size_t size, Block* previous, Block* next) {
    Block* block = spare_;
    if (block) spare_ = block->next;
    else block = &storage_.emplace_back();
    *block = Block{.data = data, .size = size, .previous = previous, .next = next};
    (previous ? previous->next : first_) = block;
    if (next) next->previous = block;
    return block;
  }
  void drop_block(Block* block) {
    (block->previous ? block->previous->next : first_) = block->next;
    if (block->next) block->next->previous = block->previous;
    block->next = spare_;
    spare_ = block;
  }
  bool mergeable(const Block* left, const Block* right) const {
    return left->data + left->size == right->data && (options_.merge_regions || !right->starts_region);
  }

  /// The front of a free block becomes live; the rest stays free when it is worth it.
  void* take(Block* block, std::size_t size) {
    if (block->size >= 2 * size || block->size - size >= kAlwaysSplit) {
      Block* front = new_block(block->data, size, block->previous, block);
      front->starts_region = block->starts_region;
      block->starts_region = false;
      resize_free(block, block->data + size, block->size - size);
      block = front;
    } else {
      remove_free(block);
    }
    return make_live(block);
  }
  void* make_live(Block* block) {
    live_.insert(block);
    stats_.in_use += block->size;
    stats_.peak_in_use = std::max(stats_.peak_in_use, stats_.in_use);
    stats_.largest_allocation = std::max(stats_.largest_allocation, block->size);
    ++stats_.allocations;
    return block->data;
  }

  void make_free(Block* block) {
    Block *left = block->previous, *right = block->next;
    const bool with_left = left && left->free && mergeable(left, block);
    const bool with_right = right && right->free && mergeable(block, right);
    if (!with_left && !with_right) return insert_free(block);
    char* data = with_left ? left->data : block->data;
    const std::size_t size = (with_left ? left->size : 0) + block->size + (with_right ? right->size : 0);
    if (with_left && with_right) {
      remove_free(right);
      drop_block(right);
    }
    if (!with_left) right->starts_region = block->starts_region;
    drop_block(block);
    resize_free(with_left ? left : right, data, size);
  }

  // --- regions

  /// Maps a region in which a block of `size` fits.
  bool extend(std::size_t size) {
    const std::size_t step = options_.region_granularity, available = options_.limit - stats_.reserved;
    const std::size_t least = size > available ? size : (size + step - 1) / step * step;
    if (least > available) return false;
    std::size_t wanted = options_.growth ? next_region_ : available;
    const bool fits = wanted >= least;
    while (wanted < least) wanted *= 2;
    std::size_t bytes = std::min((wanted + step - 1) / step * step, available);
    void* data = source_.map(bytes);
    while (!data && bytes > least) {
      bytes = std::max(least, bytes / 10 * 9 / step * step);
      data = source_.map(bytes);
    }
    if (!data) return false;
    if (options_.growth && wanted <= std::numeric_limits<std::size_t>::max() / 4) next_region_ = fits ? wanted * 2 : wanted;
    add_region(static_cast<char*>(data), bytes);
    return true;
  }
  void add_region(char* data, std::size_t bytes) {
    regions_.push_back({data, bytes});
    stats_.reserved += bytes;
    stats_.peak_reserved = std::max(stats_.peak_reserved, stats_.reserved);
    Block *previous = nullptr, *next = first_;
    for (; next && next->data < data; next = next->next) previous = next;
    Block* block = new_block(data, bytes, previous, next);
    block->starts_region = true;
    make_free(block);
  }
  /// Unmaps every region that lies in a free block.
  std::size_t give_back() {
    empty_quick_lists();
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < regions_.size();) {
      const Region region = regions_[i];
      Block* block = first_;
      while (block->data + block->size <= region.data) block = block->next;
      if (!block->free || block->data > region.data || block->data + block->size < region.data + region.size) {
        ++i;
        continue;
      }
      cut_out(block, region);
      source_.unmap(region.data, region.size);
      stats_.reserved -= region.size;
      bytes += region.size;
      regions_.erase(regions_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (regions_.empty()) next_region_ = kFirstRegion;
    return bytes;
  }
  void cut_out(Block* block, const Region& region) {
    remove_free(block);
    char *begin = block->data, *end = begin + block->size, *region_end = region.data + region.size;
    if (begin < region.data) {
      Block* left = new_block(begin, static_cast<std::size_t>(region.data - begin), block->previous, block);
      left->starts_region = block->starts_region;
      insert_free(left);
    }
    if (region_end < end) {
      Block* right = new_block(region_end, static_cast<std::size_t>(end - region_end), block, block->next);
      right->starts_region = true;
      insert_free(right);
    }
    drop_block(block);
  }

  mutable SpinLock lock_;
  RegionSource source_;
  PoolOptions options_;
  PoolStats stats_;
  std::array<Bin, kBins> bins_;
  std::vector<Bin::node_type> spare_nodes_;  ///< of the bins, kept so that a change of bin allocates nothing
  std::uint32_t bin_mask_ = 0;               ///< bit b: bin b has blocks
  std::array<QuickList, kQuickLists> quick_lists_;
  LiveBlocks live_;
  std::deque<Block> storage_;
  Block *spare_ = nullptr, *first_ = nullptr;
  std::vector<Region> regions_;
  std::size_t next_region_ = kFirstRegion;
};

}  // namespace tensorlite::detail
