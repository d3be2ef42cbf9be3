// PlannedGroups: the groups of names that ranks report by one number, as the coordinator knows them: what each number
// stands for, and who has reported which group.
//
// A group's reports are counted for the group as a whole while nothing else happens to its names. Otherwise it is
// *touched*: its reports stand for those of its names, one by one, until all of these are at rest again.
//
// Ranks learn a plan from the log. Until all have, those that have not may report groups of the one before, and there
// is no third. Plain state with questions that can be asked of it; the coordinator decides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "negotiate/learned_order.hpp"
#include "negotiate/messages.hpp"
#include "negotiate/round.hpp"

namespace ciranda {

struct PlannedGroup {
  std::uint32_t number = 0;        // in its plan
  std::uint64_t learned_plan = 0;  // what LearnedOrder calls the plan
  std::vector<NamedRounds*> names;
  std::uint32_t kind = kNoKind;  // of all of them
  std::size_t n_bytes = 0;

  std::vector<bool> arrivals;  // by member
  int n_arrived = 0;
  bool is_ready = false;  // all have arrived, and it waits to be carried out
  bool is_touched = false;
  std::uint64_t n_failed_before = 0;  // as in Round
  TimePoint opened;

  bool is_open() const { return is_ready || n_arrived > 0; }
  bool has_arrived(int member) const { return is_ready || arrivals[static_cast<std::size_t>(member)]; }
  // REQUIRES: the member has not arrived.
  void arrive(int member);
  void close();
  // Whether it can be counted as a whole: all its names are at rest, and are what they were planned as.
  bool is_whole(std::size_t most_bytes);
};

class PlannedGroups {
 public:
  // `most_bytes`: of names that travel together.
  PlannedGroups(int n_members, std::size_t most_bytes) : n_members_(n_members), most_bytes_(most_bytes) {}

  // Whether a plan can be made known: all ranks know the last one.
  bool can_publish() const { return n_knowing_ == n_members_ || current_.number == 0; }
  // REQUIRES: can_publish(), no group is open, and `order` has a plan of these cache ids.
  PlanEntry publish(const LearnedOrder& order, const std::vector<NamedRounds*>& by_cache_id);
  // A member knows the plan, as it says once. False: there is no such plan.
  bool know(std::uint32_t plan);

  // Null if there is none, or all ranks know a later plan.
  PlannedGroup* find(std::uint32_t plan, std::uint32_t number);
  bool is_current(std::uint32_t plan) const { return plan == current_.number; }
  // Whether there is one before the current, by which some rank may report.
  bool is_previous_in_use() const { return !previous_.groups.empty(); }
  std::uint32_t plan() const { return current_.number; }
  std::uint64_t learned_plan() const { return learned_plan_; }
  const std::vector<std::unique_ptr<PlannedGroup>>& groups() const { return current_.groups; }
  std::size_t most_bytes() const { return most_bytes_; }

 private:
  struct Plan {
    std::uint32_t number = 0;  // 0: none
    std::vector<std::unique_ptr<PlannedGroup>> groups;
  };

  int n_members_;
  std::size_t most_bytes_;
  Plan current_;
  Plan previous_;
  std::uint64_t learned_plan_ = 0;
  int n_knowing_ = 0;  // members that know the current plan
};

}  // namespace ciranda
