// ProcessSets: which ranks each process set has, by id; and the ids by which lanes are known. Set 0 is the world.
//
// Sets are made and removed in the order of the world's log, so that every rank gives the same ids without asking.
// Two ranks that send to each other are a *pair*: a set that needs no agreement, because its id says who they are.
// Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "negotiate/messages.hpp"

namespace ciranda {

inline constexpr std::uint32_t kWorldSet = 0;
inline constexpr std::uint32_t kMaxLanes = 64;  // of one set

using Ranks = std::shared_ptr<const std::vector<int>>;

// Pairs have ids above all sets.
inline constexpr std::uint32_t kPairBit = 0x80000000;
inline constexpr int kMaxPairRank = 1 << 15;
constexpr bool is_pair(std::uint32_t id) { return (id & kPairBit) != 0; }
// REQUIRES: a != b, both in [0, kMaxPairRank).
constexpr std::uint32_t pair_of(int a, int b) {
  const auto low = static_cast<std::uint32_t>(a < b ? a : b);
  const auto high = static_cast<std::uint32_t>(a < b ? b : a);
  return kPairBit | low << 15 | high;
}
constexpr std::pair<int, int> ranks_of_pair(std::uint32_t pair) {
  return {static_cast<int>(pair >> 15 & 0x7fff), static_cast<int>(pair & 0x7fff)};
}

constexpr LaneId lane_id(std::uint32_t process_set, std::uint32_t lane) {
  return is_pair(process_set) ? process_set : process_set * kMaxLanes + lane;
}
constexpr std::uint32_t set_of(LaneId lane) { return is_pair(lane) ? lane : lane / kMaxLanes; }

class ProcessSets {
 public:
  explicit ProcessSets(int world_size);

  // Null when there is no such set (or no more). Pairs always exist.
  Ranks ranks(std::uint32_t id) const;
  // Whether a set of this id has ever been made.
  bool was_made(std::uint32_t id) const;
  std::optional<std::uint32_t> find(const std::vector<int>& ranks) const;

  // In the order of the log. REQUIRES: ascending ranks of the world, not those of an existing set.
  std::uint32_t add(std::vector<int> ranks);
  bool remove(std::uint32_t id);

  int world_size() const { return static_cast<int>(world_->size()); }

 private:
  Ranks world_;
  mutable std::shared_mutex mutex_;
  std::map<std::uint32_t, Ranks> sets_;  // but for the world
  std::uint32_t next_id_ = 1;
};

// "[0, 2, 5]"
std::string to_string(const std::vector<int>& ranks);

}  // namespace ciranda
