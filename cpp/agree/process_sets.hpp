// ProcessSets: which ranks each process set has, by id; and the ids by which lanes are known. Set 0 is the world.
//
// Sets are made and removed in the order of the world's log, so that every rank gives the same ids without asking.
// Two ranks that send to each other are a *pair*: a set that needs no agreement, because its id says who they are.
// Some ranks may also *form* a set by themselves, without the others: its id names the first of them, who chose it.
// It ends, by its own log, when the first of its ranks leaves it.
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

#include "agree/messages.hpp"
#include "base/status.hpp"
#include "call/request.hpp"

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

// Formed sets have ids between those of other sets and pairs.
inline constexpr std::uint32_t kFormedBit = 0x40000000;
inline constexpr std::uint32_t kMaxFormed = 1 << 15;  // by one first rank
constexpr bool is_formed(std::uint32_t id) { return !is_pair(id) && (id & kFormedBit) != 0; }
// REQUIRES: first in [0, kMaxPairRank), nth < kMaxFormed.
constexpr std::uint32_t formed_set(int first, std::uint32_t nth) {
  return kFormedBit | static_cast<std::uint32_t>(first) << 15 | nth;
}
// Such a set comes to be on each of its ranks by itself, and has one lane.
constexpr bool needs_no_agreement(std::uint32_t id) { return is_pair(id) || is_formed(id); }

// Those that there can be; all but the first few come to be when they are first used.
constexpr std::uint32_t n_lanes_of(std::uint32_t id) { return needs_no_agreement(id) ? 1 : kMaxLanes; }

constexpr LaneId lane_id(std::uint32_t process_set, std::uint32_t lane) {
  return needs_no_agreement(process_set) ? process_set : process_set * kMaxLanes + lane;
}
// The lane's number in its set.
constexpr std::uint32_t lane_of(LaneId lane) { return needs_no_agreement(lane) ? 0 : lane % kMaxLanes; }
constexpr std::uint32_t set_of(LaneId lane) { return needs_no_agreement(lane) ? lane : lane / kMaxLanes; }
// Of numbers that nobody has checked: whether their id is no other lane's.
constexpr bool is_lane(std::uint32_t process_set, std::uint32_t lane) {
  const LaneId id = lane_id(process_set, lane);
  return set_of(id) == process_set && lane_of(id) == lane;
}

class ProcessSets {
 public:
  explicit ProcessSets(int world_size);

  // Null when there is no such set (or no more). Pairs always exist.
  Ranks ranks(std::uint32_t id) const;
  // Whether the log has made a set of this id, which may be gone by now, or a formed one has ended. Never so of others
  // that need no agreement: a rank may form one at any moment, and what others said of it before was early, not late.
  bool was_made(std::uint32_t id) const;
  std::optional<std::uint32_t> find(const std::vector<int>& ranks) const;

  // In the order of the log. REQUIRES: ascending ranks of the world, not those of an existing set.
  std::uint32_t add(std::vector<int> ranks);
  bool remove(std::uint32_t id);

  // On each of the set's ranks, of which `rank` is this one, at any time; the id. Not ok: they can form no set, or
  // number `nth` of the first of them is taken.
  Result<std::uint32_t> form(int rank, std::vector<int> ranks, std::uint32_t nth);

  // Of a formed set, which a rank has left: there is none of its number any more, nor will be.
  void end(std::uint32_t id, int leaver);
  std::vector<std::uint32_t> ended() const;
  // Why there is no such set any more; Aborted, of one that has ended.
  std::optional<Status> end_of(std::uint32_t id) const;

  int world_size() const { return static_cast<int>(world_->size()); }

 private:
  Ranks world_;
  mutable std::shared_mutex mutex_;
  std::map<std::uint32_t, Ranks> sets_;   // but for the world and pairs
  std::map<std::uint32_t, int> leavers_;  // of formed sets that have ended
  std::uint32_t next_id_ = 1;
};

// "[0, 2, 5]"
std::string to_string(const std::vector<int>& ranks);
// Aborted: why no call of a formed set can be carried out any more.
Status has_left(int leaver);

}  // namespace ciranda
