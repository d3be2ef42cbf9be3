// ProcessSets: the ranks of each process set, by id, and the ids of lanes. Set 0 is the world.
//
// Sets are added and removed in the order of the world's log, so all ranks assign the same ids without communication.
// Two ranks that send to each other are a *pair*: a set that needs no agreement, because its id encodes both ranks.
// Some ranks may also *form* a set without the others: its id contains the first of them, which chose the id. A formed
// set ends, by its own log, when the first of its ranks leaves it. Called by Engine, prepare(), Lanes, Staged
// and ProgressLoop, through WorldParts; ids of sets also by AutoNames, AnswerWatch, Lane and LaneLog; any thread.
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

// Ids of pairs are above those of all other sets.
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

// Ids of formed sets are between those of pairs and those of all other sets.
inline constexpr std::uint32_t kFormedBit = 0x40000000;
inline constexpr std::uint32_t kMaxFormed = 1 << 15;  // the most sets with the same lowest rank
constexpr bool is_formed(std::uint32_t id) { return !is_pair(id) && (id & kFormedBit) != 0; }
// REQUIRES: first in [0, kMaxPairRank), nth < kMaxFormed.
constexpr std::uint32_t formed_set(int first, std::uint32_t nth) {
  return kFormedBit | static_cast<std::uint32_t>(first) << 15 | nth;
}
// Each rank of such a set creates it without communication, and the set has one lane.
constexpr bool needs_no_agreement(std::uint32_t id) { return is_pair(id) || is_formed(id); }

// The greatest number of lanes; all but the first few are created on first use.
constexpr std::uint32_t n_lanes_of(std::uint32_t id) { return needs_no_agreement(id) ? 1 : kMaxLanes; }

constexpr LaneId lane_id(std::uint32_t process_set, std::uint32_t lane) {
  return needs_no_agreement(process_set) ? process_set : process_set * kMaxLanes + lane;
}
// The lane's number in its set.
constexpr std::uint32_t lane_of(LaneId lane) { return needs_no_agreement(lane) ? 0 : lane % kMaxLanes; }
constexpr std::uint32_t set_of(LaneId lane) { return needs_no_agreement(lane) ? lane : lane / kMaxLanes; }
// For unchecked numbers: whether no other lane has the id that lane_id() returns.
constexpr bool is_lane(std::uint32_t process_set, std::uint32_t lane) {
  const LaneId id = lane_id(process_set, lane);
  return set_of(id) == process_set && lane_of(id) == lane;
}

class ProcessSets {
 public:
  explicit ProcessSets(int world_size);

  // Null if there is no such set (any more). Pairs always exist.
  Ranks ranks(std::uint32_t id) const;
  // Whether the log has added a set of this id, which may have been removed, or a formed set of this id has ended.
  // False for other sets that need no agreement: a rank may form one at any moment, so an earlier message for it is
  // early, not late.
  bool was_made(std::uint32_t id) const;
  std::optional<std::uint32_t> find(const std::vector<int>& ranks) const;

  // In the order of the log. REQUIRES: ascending ranks of the world, not equal to those of an existing set.
  std::uint32_t add(std::vector<int> ranks);
  bool remove(std::uint32_t id);

  // Called on each of the set's ranks, of which `rank` is this one, at any time. Returns the id, or an error if the
  // ranks cannot form a set or the first of them has already used number `nth`.
  Result<std::uint32_t> form(int rank, std::vector<int> ranks, std::uint32_t nth);

  // A rank has left this formed set: the set ends, and its id is never used again.
  void end(std::uint32_t id, int leaver);
  std::vector<std::uint32_t> ended() const;
  // Why the set has ended: Aborted, for a formed set; none for others.
  std::optional<Status> end_of(std::uint32_t id) const;

  int world_size() const { return static_cast<int>(world_->size()); }

 private:
  Ranks world_;
  mutable std::shared_mutex mutex_;
  std::map<std::uint32_t, Ranks> sets_;   // except the world and pairs
  std::map<std::uint32_t, int> leavers_;  // the rank that left each formed set that has ended
  std::uint32_t next_id_ = 1;
};

// "[0, 2, 5]"
std::string to_string(const std::vector<int>& ranks);
// Aborted: the error of calls in a formed set that a rank has left.
Status has_left(int leaver);

}  // namespace ciranda
