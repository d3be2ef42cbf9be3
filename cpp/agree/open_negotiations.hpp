// OpenNegotiations: the number of open negotiations of a lane, the time of the next check, and the check itself, which
// finds the negotiations that have stalled because some rank does not report. It names the missing ranks, and the
// negotiations to fail. Called by Coordinator, Negotiations, PlannedGroups and Standstill; pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "agree/coordinator_options.hpp"
#include "agree/members.hpp"
#include "agree/messages.hpp"
#include "agree/negotiation.hpp"

namespace ciranda {

struct Stalls {
  struct Failing {
    NameState* name;
    ErrorKind kind;
    std::string text;
    bool fails_late_calls = true;  // calls of members that have not reported the name yet
  };
  std::vector<StallReport> reports;  // for people
  std::vector<Failing> failing;      // their texts are made while all of them are still open
  std::vector<CancelEntry> cancelled;
};

class OpenNegotiations {
 public:
  explicit OpenNegotiations(const CoordinatorOptions& options) : options_(options) {}

  // The negotiation of a name, or a planned group, has opened at this time.
  void opened(TimePoint when) {
    ++n_open_;
    if (!due_) due_ = first_due(when);
  }
  void closed() {
    if (--n_open_ == 0) due_.reset();
  }
  std::size_t n_open() const { return n_open_; }

  // A negotiation that could not fail before may fail now, and is overdue since this time.
  void look_at(TimePoint when) { due_ = when; }
  // When check() is due next; none while no negotiation is open.
  const std::optional<TimePoint>& due() const { return due_; }
  bool is_due(TimePoint now) const { return due_ && now >= *due_; }
  std::optional<TimePoint> first_due(TimePoint opened) const {
    return first_due(opened, opened + options_.stall.warning);
  }

  // Reports each negotiation that has waited for the warning time, and again whenever its waiting time has doubled
  // since its last report. Negotiations over the shutdown time are to fail. `groups_due`: when planned groups must be
  // checked next.
  Stalls check(const NameStates& names, const Members& members, std::optional<TimePoint> groups_due, TimePoint now);

 private:
  std::optional<TimePoint> first_due(TimePoint opened, TimePoint next_report) const;

  const CoordinatorOptions& options_;
  std::size_t n_open_ = 0;
  std::optional<TimePoint> due_;  // at or before the first report of any open negotiation
};

}  // namespace ciranda
