// PlannedGroups: the groups of names that ranks report by one number, as the coordinator knows them: what each number
// stands for, and who has reported which group.
//
// A group's reports are counted for the group as a whole while nothing else happens to its names. Otherwise it is
// *touched*: its reports stand for those of its names, one by one, until all of these are at rest again.
//
// Ranks learn a plan from the log. Until all have, those that have not may report groups of the one before, and there
// is no third. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "agree/coordinator_options.hpp"
#include "agree/learned_order.hpp"
#include "agree/members.hpp"
#include "agree/messages.hpp"
#include "agree/round.hpp"
#include "base/status.hpp"

namespace ciranda {

class ReadyQueue;
class Rounds;
class OpenRounds;

struct PlannedGroup {
  enum class Stage : std::uint8_t {
    kTouched,
    kWhole,  // nobody has reported it yet
    kOpen,
    kReady,  // all have, and it waits to be carried out
  };

  std::uint32_t number = 0;        // in its plan
  std::uint64_t learned_plan = 0;  // what LearnedOrder calls the plan
  std::vector<NamedRounds*> names;
  std::uint32_t kind = kNoKind;  // of all of them
  std::size_t n_bytes = 0;

  std::vector<bool> arrivals;  // by member
  int n_arrived = 0;
  Stage stage = Stage::kTouched;      // until looked at
  std::uint64_t n_failed_before = 0;  // as in Round
  TimePoint opened;

  bool is_open() const { return stage == Stage::kOpen || is_ready(); }
  bool is_ready() const { return stage == Stage::kReady; }
  bool has_arrived(int member) const { return is_ready() || arrivals[static_cast<std::size_t>(member)]; }
  // REQUIRES: the member has not arrived.
  void arrive(int member);
  // Whether it can be counted as a whole: all its names are at rest, and are what they were planned as.
  bool is_whole(std::size_t most_bytes);
  // What follows: kWhole, or kTouched.
  void close(Stage to);
};

class PlannedGroups {
 public:
  // All of these outlive it.
  PlannedGroups(const CoordinatorOptions& options, Members& members, ReadyQueue& ready, Rounds& rounds,
                OpenRounds& open_rounds)
      : options_(options), members_(members), ready_(ready), rounds_(rounds), open_(open_rounds) {}

  // An error, here and below, means that the member breaks the rules.
  Status report(const GroupsMessage& message, int member, TimePoint now);
  // The same of all members, at a cost that does not depend on how many there are, nor on how many names groups have.
  Status report_by_all(const GroupsMessage& message, TimePoint now);

  // Something else happens to the name: the reports of its group become those of its names.
  void touch(NamedRounds& name);
  // To any name. What is ready then is in the queue by name.
  void disperse_all();
  // Stalls are told of by name. Returns when this must be called for what is still open.
  std::optional<TimePoint> disperse_stalled(TimePoint now);

  // What all members are to be told: there is a new plan, and all know the last one.
  std::optional<PlanEntry> publish(const LearnedOrder& order, const std::vector<NamedRounds*>& by_cache_id);
  std::uint32_t plan() const { return current_.number; }
  // Whether there is one before the current, by which some rank may report.
  bool is_previous_in_use() const { return !previous_.groups.empty(); }
  // It is carried out.
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
  void open(PlannedGroup& group, TimePoint now);
  void complete(PlannedGroup& group);
  void disperse(PlannedGroup& group);

  const CoordinatorOptions& options_;
  Members& members_;
  ReadyQueue& ready_;
  Rounds& rounds_;
  OpenRounds& open_;
  Plan current_;
  Plan previous_;
  std::uint64_t learned_plan_ = 0;
  int n_knowing_ = 0;  // members that know the current plan
};

}  // namespace ciranda
