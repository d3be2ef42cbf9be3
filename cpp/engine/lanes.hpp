// Lanes: the lanes of which this rank is a member, by id. Creates and removes them, and passes submissions and messages
// to them.
//
// Entries in the world's log add and remove process sets with their first lanes. An entry in the log of a set's first
// lane adds a further lane. So all members create a lane at the same position. A submission or a message for a lane
// that does not exist yet on this rank is kept until it does.
//
// One thread (the holder of the progress lock).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/lane.hpp"
#include "engine/world_parts.hpp"
#include "execute/submission.hpp"

namespace ciranda {

class Lanes final : public LaneMessages {
 public:
  // Creates the world's lanes. `world` outlives this.
  explicit Lanes(WorldParts& world);

  // In the order of their creation. The first is the world's first lane.
  const std::vector<std::unique_ptr<Lane>>& all() const { return lanes_; }
  Lane& first() const { return *lanes_.front(); }
  template <typename Predicate>
  bool has_any(Predicate is) const {
    for (const auto& lane : lanes_) {
      if (is(*lane)) return true;
    }
    return false;
  }

  Lane* find(LaneId id) const;
  // The lane that has all pending calls of this rank; null if no call is pending, or if several lanes have some.
  Lane* find_only_pending() const;

  Status on_message(int peer, LaneId id, Message message, TimePoint now) override;
  // Passes on the kept messages whose lanes exist now.
  Status hear_kept(TimePoint now);

  // The lane of a repeated call. Null if the call must be submitted instead: submit() creates the lane, keeps the call,
  // or fails it with the reason.
  Lane* find_for(const Call& call) const {
    return (call.process_set | call.lane) == 0 ? &first() : find_further(call.process_set, call.lane);
  }

  // Returns the lane that has taken the submission. Null if it has failed, is kept, or concerns a whole set (a join, or
  // leaving a formed set).
  Lane* submit(Submission&& submission, TimePoint now);
  // Passes on the kept submissions whose lanes exist now.
  void submit_kept(TimePoint now);

  // Fails all calls of all lanes at once.
  void give_up(const Status& why);
  void remove_those_that_are_over();
  // For a broken world, which executes no further calls.
  void remove_all_but_first();

 private:
  struct Early {
    int peer;
    Message message;
  };

  Status change_sets(const Request& request, std::int64_t& result);
  Status add_set(const Request& request, std::int64_t& result);
  Status remove_set(const Request& request, std::int64_t& result);
  Status add_lane(const Request& request);

  Lane* find_further(std::uint32_t process_set, std::uint32_t number) const;
  Lane* find_or_make(LaneId id);
  Lane& make(LaneId id, const std::vector<int>& ranks);
  void make_first(std::uint32_t process_set, const std::vector<int>& ranks);
  std::optional<Status> refusal_of(const Request& request) const;
  void ask_for(LaneId id, TimePoint now);
  template <typename Predicate>
  void remove_if(Predicate is);
  void leave(const Submission& submission);
  void join(Submission&& submission, TimePoint now);

  WorldParts& world_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::unordered_map<LaneId, Lane*> by_id_;
  // Messages and submissions for lanes that cannot take them yet, in the order of arrival.
  std::map<LaneId, std::vector<Early>> early_;
  std::size_t n_early_ = 0;  // of all lanes
  std::map<LaneId, std::vector<Submission>> kept_;
  // The pending operations by which the ranks agree on a new lane.
  std::unordered_map<LaneId, std::shared_ptr<Operation>> asked_for_;
};

}  // namespace ciranda
