// Keys of plan caches: structs without padding, compared and hashed as words.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <unordered_map>

namespace tensorlite::cuda {

template <class Key> struct PlanKeyHash {
  static_assert(std::has_unique_object_representations_v<Key> && sizeof(Key) % 8 == 0);
  std::size_t operator()(const Key& key) const {
    std::uint64_t words[sizeof(Key) / 8], hash = 0xcbf29ce484222325u;
    std::memcpy(words, &key, sizeof key);
    for (const std::uint64_t word : words) hash = (hash ^ word ^ (hash >> 32)) * 0x9e3779b97f4a7c15u;
    return hash ^ (hash >> 29);
  }
};
template <class Key> struct PlanKeyEqual {
  bool operator()(const Key& a, const Key& b) const { return std::memcmp(&a, &b, sizeof a) == 0; }
};
template <class Key, class Plan> using PlanCache = std::unordered_map<Key, Plan, PlanKeyHash<Key>, PlanKeyEqual<Key>>;

}  // namespace tensorlite::cuda
