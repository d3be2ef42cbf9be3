// Lanes: the lanes of which this rank is a member, by id. Creates and removes them, and passes submissions and messages
// to them.
//
// Entries in the world's log add and remove process sets with their first lanes. An entry in the log of a set's first
// lane adds a further lane. So all members create a lane at the same position. A submission or a message for a lane
// that does not exist yet on this rank is kept until it does. Called by ProgressLoop; through LaneMessages by
// ControlPlane, with each message; through ChangeSets by Lane, as its log makes or removes sets; one thread (the holder
// of the progress lock).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/thread_annotations.hpp"
#include "engine/lane.hpp"
#include "engine/world_parts.hpp"
#include "execute/submission.hpp"

namespace ciranda {

class Lanes final : public LaneMessages {
 public:
  // Creates the world's lanes. `world` outlives this.
  explicit Lanes(WorldParts& world);

  // In the order of their creation. The first is the world's first lane.
  const std::vector<std::unique_ptr<Lane>>& all() const REQUIRES(progress_lock) { return lanes_; }
  Lane& first() const REQUIRES(progress_lock) { return *lanes_.front(); }
  template <typename Predicate>
  bool has_any(Predicate is) const REQUIRES(progress_lock) {
    for (const auto& lane : lanes_) {
      if (is(*lane)) return true;
    }
    return false;
  }

  Lane* find(LaneId id) const REQUIRES(progress_lock);
  // The lane that has all pending calls of this rank; null if no call is pending, or if several lanes have some.
  Lane* find_only_pending() const REQUIRES(progress_lock);

  Status on_message(int peer, LaneId id, Message message, TimePoint now) override REQUIRES(progress_lock);
  // Passes on the kept messages whose lanes exist now.
  Status deliver_kept(TimePoint now) REQUIRES(progress_lock);

  // The lane of a repeated call. Null if the call must be submitted instead: submit() creates the lane, keeps the call,
  // or fails it with the reason.
  Lane* find_for(const Call& call) const REQUIRES(progress_lock) {
    return (call.process_set | call.lane) == 0 ? &first() : find_further(call.process_set, call.lane);
  }

  // Returns the lane that has taken the submission. Null if it has failed, is kept, or concerns a whole set (a join, or
  // leaving a formed set).
  Lane* submit(Submission&& submission, TimePoint now) REQUIRES(progress_lock);
  // Passes on the kept submissions whose lanes exist now.
  void submit_kept(TimePoint now) REQUIRES(progress_lock);

  // Fails all calls of all lanes at once.
  void give_up(const Status& why) REQUIRES(progress_lock);
  // Of all lanes: see DataPlane. Whether one has some.
  bool abort_graphs() REQUIRES(progress_lock);
  void remove_those_that_are_over() REQUIRES(progress_lock);
  // For a broken world, which executes no further calls.
  void remove_all_but_first() REQUIRES(progress_lock);

 private:
  struct Early {
    int peer;
    Message message;
  };

  Status change_sets(const Request& request, std::int64_t& result) REQUIRES(progress_lock);
  Status add_set(const Request& request, std::int64_t& result) REQUIRES(progress_lock);
  Status remove_set(const Request& request, std::int64_t& result) REQUIRES(progress_lock);
  Status add_lane(const Request& request) REQUIRES(progress_lock);

  Lane* find_further(std::uint32_t process_set, std::uint32_t number) const REQUIRES(progress_lock);
  Lane* find_or_make(LaneId id) REQUIRES(progress_lock);
  Lane& make(LaneId id, const std::vector<int>& ranks) REQUIRES(progress_lock);
  void make_first(std::uint32_t process_set, const std::vector<int>& ranks) REQUIRES(progress_lock);
  std::optional<Status> refusal_of(const Request& request) const REQUIRES(progress_lock);
  void ask_for(LaneId id, TimePoint now) REQUIRES(progress_lock);
  template <typename Predicate>
  void remove_if(Predicate is) REQUIRES(progress_lock);
  void leave(const Submission& submission) REQUIRES(progress_lock);
  void join(Submission&& submission, TimePoint now) REQUIRES(progress_lock);

  WorldParts& world_;
  std::vector<std::unique_ptr<Lane>> lanes_ GUARDED_BY(progress_lock);
  std::unordered_map<LaneId, Lane*> by_id_ GUARDED_BY(progress_lock);
  // Messages and submissions for lanes that cannot take them yet, in the order of arrival.
  std::map<LaneId, std::vector<Early>> early_ GUARDED_BY(progress_lock);
  std::size_t n_early_ GUARDED_BY(progress_lock) = 0;  // of all lanes
  std::map<LaneId, std::vector<Submission>> kept_ GUARDED_BY(progress_lock);
  // The pending operations by which the ranks agree on a new lane.
  std::unordered_map<LaneId, std::shared_ptr<Operation>> asked_for_ GUARDED_BY(progress_lock);
};

}  // namespace ciranda
