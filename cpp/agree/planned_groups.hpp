// PlannedGroups: the coordinator's table of groups of names that ranks report by one number: the names of each group,
// and the members that have reported it.
//
// The reports of a group are counted for the whole group while nothing else happens to its names. Otherwise the group
// is *touched*: each of its reports counts as a report of each of its names, until no name of it has an open
// negotiation.
//
// A report costs the same whatever the number of names: the coordinator computes 0.4 ms a step for 4,096 ranks with 100
// tensors, and 1.1 ms with 1,000 (docs/reference/negotiation.md has these, and what sets of cache ids would cost).
//
// Ranks learn a plan from the log. Until all have acknowledged it, the others may report groups of the previous plan,
// and no third plan is made. Called by Coordinator; pure.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "agree/coordinator_options.hpp"
#include "agree/learned_order.hpp"
#include "agree/members.hpp"
#include "agree/messages.hpp"
#include "agree/negotiation.hpp"
#include "agree/planned_group.hpp"
#include "base/status.hpp"

namespace ciranda {

class ReadyQueue;
class Negotiations;
class OpenNegotiations;

class PlannedGroups {
 public:
  // The arguments outlive this object.
  PlannedGroups(const CoordinatorOptions& options, Members& members, ReadyQueue& ready, Negotiations& negotiations,
                OpenNegotiations& open_negotiations)
      : options_(options), members_(members), ready_(ready), negotiations_(negotiations), open_(open_negotiations) {}

  // An error, here and below, means that the member violates the protocol.
  Status report(const GroupsMessage& message, int member, TimePoint now);
  // The same for all members, at a cost that depends neither on their number nor on the number of names in the groups.
  Status report_by_all(const GroupsMessage& message, TimePoint now);

  // The name is used in another way: reports of its group become reports of its names.
  void touch(NameState& name);
  // Does this for all groups. Groups that are ready are then in the queue by name.
  void disperse_all();
  // Does this for groups that have stalled, since stalls are reported by name. Returns when the other groups are due.
  std::optional<TimePoint> disperse_stalled(TimePoint now);

  // A new plan to send to all members, if there is one and all members know the last one.
  std::optional<PlanEntry> publish(const LearnedOrder& order, const std::vector<NameState*>& by_cache_id);
  std::uint32_t plan() const { return current_.number; }
  // Whether some rank may still report by the previous plan.
  bool is_previous_in_use() const { return !previous_.groups.empty(); }
  // The group is executed.
  void close(PlannedGroup& group);

 private:
  struct Plan {
    std::uint32_t number = 0;  // 0: none
    std::vector<std::unique_ptr<PlannedGroup>> groups;
  };

  bool know(std::uint32_t plan);
  PlannedGroup* find(std::uint32_t plan, std::uint32_t number);
  bool is_countable(PlannedGroup& group);
  Status report(PlannedGroup& group, int member, TimePoint now);
  void note_arrival(const PlannedGroup& group, int member);
  void open(PlannedGroup& group, TimePoint now);
  void complete(PlannedGroup& group);
  void disperse(PlannedGroup& group);

  const CoordinatorOptions& options_;
  Members& members_;
  ReadyQueue& ready_;
  Negotiations& negotiations_;
  OpenNegotiations& open_;
  Plan current_;
  Plan previous_;
  std::uint64_t learned_plan_ = 0;
  int n_knowing_ = 0;  // members that know the current plan
};

}  // namespace ciranda
