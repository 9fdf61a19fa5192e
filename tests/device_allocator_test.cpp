// The caching allocator: TensorFlow's own values, best fit, growth, limits, giving back, misuse, and a soak against a plain model.
#include "catch.hpp"

#include <tensorlite/detail/caching_allocator.hpp>

#include <map>
#include <random>
#include <algorithm>
#include <thread>

using namespace tensorlite::detail;

namespace {

constexpr std::size_t kMib = 1 << 20;

/// A device that hands out addresses only: nothing may touch them.
struct FakeDevice {
  std::size_t capacity = std::size_t{1} << 40, used = 0;
  std::map<char*, std::size_t> regions;
  std::vector<std::size_t> maps;
  bool adjoin = false;
  char* next = reinterpret_cast<char*>(std::uintptr_t{1} << 40);

  RegionSource source() {
    return {[this](std::size_t bytes) -> void* {
              maps.push_back(bytes);
              if (bytes > capacity - used) return nullptr;
              used += bytes;
              char* region = next;
              next += bytes + (adjoin ? 0 : kMib);
              regions[region] = bytes;
              return region;
            },
            [this](void* data, std::size_t bytes) {
              const auto found = regions.find(static_cast<char*>(data));
              REQUIRE(found != regions.end());
              REQUIRE(found->second == bytes);
              regions.erase(found);
              used -= bytes;
            }};
  }
};

}  // namespace

TEST_CASE("sizes 1 to 1023 need what TensorFlow's allocator needs") {
  FakeDevice device;
  CachingAllocator pool(device.source(), {.limit = std::size_t{1} << 30});
  std::vector<void*> blocks;
  for (std::size_t size = 1; size < 1024; ++size) blocks.push_back(pool.allocate(size));
  PoolStats stats = pool.stats();
  CHECK(stats.allocations == 1023);
  CHECK(stats.in_use == 654336);
  CHECK(stats.largest_allocation == 1024);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    REQUIRE(reinterpret_cast<std::uintptr_t>(blocks[i]) % 256 == 0);
    if (i) REQUIRE(blocks[i] != blocks[i - 1]);
  }
  for (void* block : blocks) CHECK(pool.release(block));
  stats = pool.stats();
  CHECK(stats.in_use == 0);
  CHECK(stats.peak_in_use == 654336);
  CHECK(stats.largest_free_block == stats.reserved);
  pool.reset_stats();
  CHECK(pool.stats().peak_in_use == 0);
  CHECK(pool.stats().allocations == 0);
}

TEST_CASE("four mixed sizes over and over do not grow and repeat their pointers") {
  FakeDevice device;
  CachingAllocator pool(device.source(), {.limit = std::size_t{1} << 30});
  std::vector<void*> first;
  std::size_t reserved = 0;
  for (int round = 0; round < 1024; ++round) {
    std::vector<void*> blocks;
    for (std::size_t size : {4096u, 100u, 65536u, 7777u}) blocks.push_back(pool.allocate(size));
    if (round == 0) first = blocks, reserved = pool.stats().reserved;
    REQUIRE(blocks[0] == first[0]);
    REQUIRE(pool.stats().reserved == reserved);
    for (void* block : blocks) REQUIRE(pool.release(block));
  }
}

TEST_CASE("a limit of 2 MiB refuses 8 MiB and serves on") {
  FakeDevice device;
  CachingAllocator pool(device.source(), {.limit = 2 * kMib});
  void* small = pool.allocate(256);
  CHECK(small != nullptr);
  CHECK(pool.allocate(8 * kMib) == nullptr);
  CHECK(pool.stats().in_use == 256);
  CHECK(pool.allocate(256) != nullptr);
}

TEST_CASE("sizes near the largest number do not wrap") {
  FakeDevice device;
  CachingAllocator pool(device.source(), {});
  const std::size_t largest = std::numeric_limits<std::size_t>::max();
  for (std::size_t size : {largest, largest - 1, largest - 255, largest - 256, largest / 2 + 1, largest / 2})
    CHECK(pool.allocate(size) == nullptr);
  CHECK(pool.allocate(0) == nullptr);
  CHECK(pool.release(nullptr));
  CHECK(pool.stats().allocations == 0);
  CHECK(pool.allocate(1) != nullptr);
}

TEST_CASE("growth doubles regions from 2 MiB within the limit") {
  FakeDevice device;
  CachingAllocator pool(device.source(), {.limit = 21 * kMib});
  std::vector<void*> blocks;
  for (int i = 0; i < 20; ++i) blocks.push_back(pool.allocate(kMib));
  CHECK(device.maps == std::vector<std::size_t>{2 * kMib, 4 * kMib, 8 * kMib, 6 * kMib});  // 21 MiB is 20 in whole regions
  for (void* block : blocks) CHECK(block != nullptr);
  CHECK(pool.allocate(kMib) == nullptr);
  CHECK(pool.stats().reserved == 20 * kMib);
  CHECK(pool.stats().limit == 20 * kMib);
}

TEST_CASE("without growth the limit is mapped at first use") {
  FakeDevice device;
  CachingAllocator pool(device.source(), {.limit = 100 * kMib, .growth = false});
  CHECK(device.used == 0);
  CHECK(pool.allocate(1) != nullptr);
  CHECK(device.used == 100 * kMib);
  CHECK(device.maps.size() == 1);
}

TEST_CASE("a driver that refuses is asked for a tenth less until the request no longer fits") {
  FakeDevice device;
  device.capacity = 70 * kMib;
  SECTION("it fits") {
    CachingAllocator pool(device.source(), {.limit = 100 * kMib, .growth = false});
    CHECK(pool.allocate(60 * kMib) != nullptr);
    CHECK(device.maps == std::vector<std::size_t>{100 * kMib, 90 * kMib, 80 * kMib, 72 * kMib, 64 * kMib});
  }
  SECTION("it does not") {
    CachingAllocator pool(device.source(), {.limit = 100 * kMib, .growth = false});
    CHECK(pool.allocate(75 * kMib) == nullptr);
    CHECK(device.used == 0);
    CHECK(pool.allocate(10 * kMib) != nullptr);
  }
}

TEST_CASE("a block is split when it is twice the request or 128 MiB larger") {
  FakeDevice device;
  CachingAllocator pool(device.source(), {.limit = std::size_t{4} << 30, .growth = false});
  const auto fill = pool.allocate((std::size_t{4} << 30) - 512 * kMib);
  REQUIRE(fill);
  const auto in_use = [&] { return pool.stats().in_use - ((std::size_t{4} << 30) - 512 * kMib); };
  void* block = pool.allocate(500 * kMib);  // 512 MiB is neither
  CHECK(in_use() == 512 * kMib);
  pool.release(block);
  block = pool.allocate(384 * kMib);  // 128 MiB larger
  CHECK(in_use() == 384 * kMib);
  pool.release(block);
  block = pool.allocate(256 * kMib);  // twice
  CHECK(in_use() == 256 * kMib);
  pool.release(block);
  CHECK(in_use() == 0);
  CHECK(pool.stats().largest_free_block == 512 * kMib);
}

TEST_CASE("the smallest block that fits is taken and of equals the lowest") {
  FakeDevice device;
  CachingAllocator pool(device.source(), {.limit = 64 * kMib, .growth = false});
  std::vector<void*> blocks;
  const std::size_t sizes[] = {8192, 256, 4096, 256, 2048, 256, 4096, 256};  // every other one keeps its neighbours apart
  for (std::size_t size : sizes) blocks.push_back(pool.allocate(size));
  for (std::size_t i = 0; i < 8; i += 2) pool.release(blocks[i]);
  CHECK(pool.allocate(2000) == blocks[4]);
  CHECK(pool.allocate(4000) == blocks[2]);
  CHECK(pool.allocate(4000) == blocks[6]);
  CHECK(pool.allocate(4000) == blocks[0]);
}

TEST_CASE("freed neighbours merge at once whatever the order") {
  std::mt19937 random(3);
  FakeDevice device;
  CachingAllocator pool(device.source(), {.limit = 2 * kMib});
  for (int round = 0; round < 50; ++round) {
    std::vector<void*> blocks;
    for (int i = 0; i < 64; ++i) blocks.push_back(pool.allocate(32 << 10));
    CHECK(pool.stats().largest_free_block == 0);
    std::shuffle(blocks.begin(), blocks.end(), random);
    for (void* block : blocks) REQUIRE(pool.release(block));
    REQUIRE(pool.stats().largest_free_block == 2 * kMib);
  }
}

TEST_CASE("fragmentation: 16 x 16 MiB of 256 MiB, the even ones freed") {
  FakeDevice device;
  const auto run = [&](bool growth) {
    CachingAllocator pool(device.source(), {.limit = 256 * kMib, .growth = growth});
    std::vector<void*> blocks;
    for (int i = 0; i < 16; ++i) {
      blocks.push_back(pool.allocate(16 * kMib));
      REQUIRE(blocks.back() != nullptr);
    }
    for (std::size_t i = 0; i < 16; i += 2) pool.release(blocks[i]);
    CHECK(pool.allocate(32 * kMib) == nullptr);
    CHECK(pool.stats().in_use == 128 * kMib);
    CHECK(pool.stats().largest_free_block == 16 * kMib);
    CHECK(pool.largest_live(8) == "\n  16.0 MiB (16777216 B) x 8");
    for (std::size_t i = 1; i < 16; i += 2) pool.release(blocks[i]);
    CHECK(pool.allocate(256 * kMib) != nullptr);
  };
  SECTION("without growth") { run(false); }
  SECTION("with growth") { run(true); }
  SECTION("separate regions are given back and the request is tried again") {
    CachingAllocator pool(device.source(), {.limit = 64 * kMib});
    std::vector<void*> blocks;
    for (std::size_t size : {16u, 16u, 32u}) blocks.push_back(pool.allocate(size * kMib));
    CHECK(device.regions.size() == 3);
    pool.release(blocks[0]);
    pool.release(blocks[1]);
    CHECK(pool.allocate(32 * kMib) != nullptr);
    CHECK(device.regions.size() == 2);
  }
}

TEST_CASE("what cannot fit is refused without giving anything back") {
  FakeDevice device;
  CachingAllocator pool(device.source(), {.limit = 64 * kMib});
  pool.release(pool.allocate(kMib));
  const void* live = pool.allocate(kMib);
  CHECK(live != nullptr);
  const std::size_t reserved = pool.stats().reserved;
  CHECK(pool.allocate(64 * kMib) == nullptr);
  CHECK(pool.stats().reserved == reserved);
}

TEST_CASE("trim gives wholly free regions back") {
  FakeDevice device;
  SECTION("separate regions") {
    CachingAllocator pool(device.source(), {.limit = 64 * kMib});
    void* a = pool.allocate(2 * kMib);
    void* b = pool.allocate(4 * kMib);
    CHECK(pool.trim() == 0);
    pool.release(b);
    CHECK(pool.trim() == 4 * kMib);
    CHECK(pool.stats().reserved == 2 * kMib);
    pool.release(a);
    CHECK(pool.trim() == 2 * kMib);
    CHECK(device.used == 0);
    CHECK(pool.stats().peak_reserved == 6 * kMib);
    CHECK(pool.allocate(1) != nullptr);
  }
  SECTION("adjoining regions merge and are cut out again") {
    device.adjoin = true;
    CachingAllocator pool(device.source(), {.limit = 64 * kMib, .merge_regions = true});
    std::vector<void*> blocks;
    for (int i = 0; i < 14; ++i) blocks.push_back(pool.allocate(kMib));
    CHECK(device.regions.size() == 3);
    for (int i = 0; i < 13; ++i) pool.release(blocks[static_cast<std::size_t>(i)]);
    CHECK(pool.stats().largest_free_block == 13 * kMib);
    CHECK(pool.allocate(13 * kMib) == blocks[0]);
    pool.release(blocks[0]);
    CHECK(pool.trim() == 6 * kMib);  // the last region, 8 MiB, still has a live block
    CHECK(pool.stats().largest_free_block == 7 * kMib);
    pool.release(blocks[13]);
    CHECK(pool.trim() == 8 * kMib);
    CHECK(device.used == 0);
  }
}

TEST_CASE("foreign and twice freed pointers are told apart from live ones") {
  FakeDevice device;
  CachingAllocator pool(device.source(), {.limit = 64 * kMib});
  void* block = pool.allocate(1000);
  int foreign = 0;
  CHECK(!pool.release(&foreign));
  CHECK(!pool.release(static_cast<char*>(block) + 256));
  CHECK(pool.release(block));
  CHECK(!pool.release(block));
  CHECK(pool.stats().in_use == 0);
}

TEST_CASE("random use never overlaps and always adds up") {
  FakeDevice device;
  device.adjoin = GENERATE(false, true);
  const bool quick = GENERATE(false, true);
  CachingAllocator pool(
      device.source(),
      {.granularity = 64, .region_granularity = 4096, .limit = 40 * kMib, .merge_regions = device.adjoin, .quick_lists = quick});
  std::map<char*, std::size_t> live;
  std::size_t refused = 0;
  std::mt19937 random(11);
  for (int i = 0; i < 40000; ++i) {
    if (live.empty() || random() % 100 < 52) {
      const std::size_t size = 1 + random() % (std::size_t{1} << (random() % 23));
      char* block = static_cast<char*>(pool.allocate(size));
      if (!block) {
        ++refused;
        while (live.size() > 20) {
          REQUIRE(pool.release(live.begin()->first));
          live.erase(live.begin());
        }
        continue;
      }
      const auto after = live.lower_bound(block);
      if (after != live.end()) REQUIRE(block + size <= after->first);
      if (after != live.begin()) REQUIRE(std::prev(after)->first + std::prev(after)->second <= block);
      live[block] = size;
    } else {
      auto chosen = std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size()));
      REQUIRE(pool.release(chosen->first));
      live.erase(chosen);
    }
    if (random() % 5000 == 0) pool.trim();
    if (!quick || i % 97 == 0) REQUIRE(pool.stats().reserved == device.used);  // which merges the waiting blocks
    REQUIRE(device.used <= 40 * kMib);
  }
  CHECK(refused > 10);
  for (const auto& [block, size] : live) REQUIRE(pool.release(block));
  CHECK(pool.stats().in_use == 0);
  pool.trim();
  CHECK(device.used == 0);
}

TEST_CASE("small freed blocks serve the next request of their size and still count as free") {
  FakeDevice device;
  CachingAllocator pool(device.source(), {.granularity = 64, .limit = 4 * kMib, .quick_lists = true});
  std::vector<void*> blocks;
  for (int i = 0; i < 40; ++i) blocks.push_back(pool.allocate(100));
  for (void* block : blocks) REQUIRE(pool.release(block));
  CHECK(!pool.release(blocks[7]));         // waiting, not live
  CHECK(pool.allocate(100) == blocks[7]);  // eight wait, the last comes first
  CHECK(pool.allocate(128) == blocks[6]);  // of the same size after rounding
  CHECK(pool.stats().in_use == 256);
  CHECK(pool.release(blocks[6]));
  CHECK(pool.release(blocks[7]));
  CHECK(pool.stats().largest_free_block == 2 * kMib);
  blocks.assign(1, pool.allocate(64));
  REQUIRE(pool.release(blocks[0]));
  void* whole = pool.allocate(2 * kMib);  // the waiting block gives way before memory is mapped
  CHECK(device.used == 2 * kMib);
  REQUIRE(pool.release(whole));
  CHECK(pool.trim() == 2 * kMib);
}

TEST_CASE("threads share a pool") {
  FakeDevice device;
  const bool quick = GENERATE(false, true);
  CachingAllocator pool(device.source(), {.granularity = 64, .limit = 64 * kMib, .quick_lists = quick});
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      std::vector<void*> mine;
      for (int i = 0; i < 5000; ++i) {
        if (mine.size() < 20) mine.push_back(pool.allocate(1 + random() % 5000));
        else {
          if (!mine.back() || !pool.release(mine.back())) ++failures;
          mine.pop_back();
        }
        if (i % 1000 == 0) pool.stats();
      }
      for (void* block : mine)
        if (!pool.release(block)) ++failures;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == 0);
  CHECK(pool.stats().in_use == 0);
}
