// Lanes: the lanes of which this rank is a member, by id: how they come to be and end, and what goes to which.
//
// Sets of ranks, with their first lanes, come and go by the log of the world; each further lane of a set comes by the
// log of its first. So all members make it at the same place. What a lane cannot take yet is kept until then: a
// submission, or a message of a member that was first.
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
  // Makes those of the world. `world` outlives this.
  explicit Lanes(WorldParts& world);

  // In the order in which they came to be. The first is the world's.
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
  // The one in which all pending calls of this rank are; null if there is none.
  Lane* find_only_pending() const;

  Status on_message(int peer, LaneId id, Message message, TimePoint now) override;
  // The messages that lanes can take by now.
  Status hear_kept(TimePoint now);

  // The lane of a call that is made again. Null: it is to be submitted, which makes the lane, keeps the call, or says
  // what is wrong.
  Lane* find_for(const Call& call) const {
    return (call.process_set | call.lane) == 0 ? &first() : find_further(call.process_set, call.lane);
  }

  // Returns the lane that has it. Null: it has failed, is kept, or is a join, which is for all lanes of its set.
  Lane* submit(Submission&& submission, TimePoint now);
  // The submissions that lanes can take by now.
  void submit_kept(TimePoint now);

  // Fails everything, now.
  void give_up(const Status& why);
  void remove_those_that_are_over();
  // The world is broken: nothing will be done in any.
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
  // What is for lanes that cannot take it yet, in the order in which it came.
  std::map<LaneId, std::vector<Early>> early_;
  std::size_t n_early_ = 0;  // of all lanes
  std::map<LaneId, std::vector<Submission>> kept_;
  // By which the ranks agree on a lane, while they do.
  std::unordered_map<LaneId, std::shared_ptr<Operation>> asked_for_;
};

}  // namespace ciranda
