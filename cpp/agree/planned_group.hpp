// PlannedGroup: names that ranks report by one number (planned_groups.hpp), and which members have reported them.
//
// Called by PlannedGroups, which decides, ReadyQueue and Coordinator; plain state with queries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "agree/learned_order.hpp"
#include "agree/members.hpp"
#include "agree/negotiation.hpp"

namespace ciranda {

struct PlannedGroup {
  enum class Stage : std::uint8_t {
    kTouched,
    kWhole,  // no member has reported it yet
    kOpen,
    kReady,  // all members have reported it, and it waits for execution
  };

  std::uint32_t number = 0;        // in its plan
  std::uint64_t learned_plan = 0;  // LearnedOrder's number of the plan
  std::vector<NameState*> names;
  std::uint32_t kind = kNoKind;  // of all names
  std::size_t n_bytes = 0;

  std::vector<bool> arrivals;  // by member
  int n_arrived = 0;
  Stage stage = Stage::kTouched;      // until is_whole() is called
  std::uint64_t n_failed_before = 0;  // as in Negotiation
  TimePoint opened;

  bool is_open() const { return stage == Stage::kOpen || is_ready(); }
  bool is_ready() const { return stage == Stage::kReady; }
  bool has_arrived(int member) const { return is_ready() || arrivals[static_cast<std::size_t>(member)]; }
  // REQUIRES: the member has not arrived.
  void arrive(int member);
  // True if reports can be counted for the whole group: no name has an open negotiation or a deferred error, and all
  // names have the planned signatures.
  bool is_whole(std::size_t most_bytes);
  // `to`: kWhole or kTouched.
  void close(Stage to);
};

}  // namespace ciranda
