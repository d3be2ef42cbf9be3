// OpenRounds: the number of open rounds of a lane, the time of the next check, and the check itself, which finds the
// rounds that have stalled because some rank does not report. It names the missing ranks, and the rounds to fail. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "agree/coordinator_options.hpp"
#include "agree/members.hpp"
#include "agree/messages.hpp"
#include "agree/round.hpp"

namespace ciranda {

struct Stalls {
  struct Failing {
    NamedRounds* name;
    ErrorKind kind;
    std::string text;
    bool is_owed = true;  // by the members that have not reported it
  };
  std::vector<StallReport> reports;  // for people
  std::vector<Failing> failing;      // their texts are made while all of them are still open
  std::vector<CancelEntry> cancelled;
};

class OpenRounds {
 public:
  explicit OpenRounds(const CoordinatorOptions& options) : options_(options) {}

  // A round of a name or a planned group has opened at this time.
  void opened(TimePoint when) {
    ++n_open_;
    if (!due_) due_ = first_due(when);
  }
  void closed() {
    if (--n_open_ == 0) due_.reset();
  }
  std::size_t n_open() const { return n_open_; }

  // A round that could not fail before may fail now, and is overdue since this time.
  void look_at(TimePoint when) { due_ = when; }
  // When check() is due next; none while no round is open.
  const std::optional<TimePoint>& due() const { return due_; }
  bool is_due(TimePoint now) const { return due_ && now >= *due_; }
  std::optional<TimePoint> first_due(TimePoint opened) const {
    return first_due(opened, opened + options_.stall.warning);
  }

  // Reports each round that has waited for the warning time, and again whenever its waiting time has doubled since its
  // last report. Rounds over the shutdown time are to fail. `groups_due`: when planned groups must be checked next.
  Stalls check(const RoundsByName& names, const Members& members, std::optional<TimePoint> groups_due, TimePoint now);

 private:
  std::optional<TimePoint> first_due(TimePoint opened, TimePoint next_report) const;

  const CoordinatorOptions& options_;
  std::size_t n_open_ = 0;
  std::optional<TimePoint> due_;  // at or before the first report of any open round
};

}  // namespace ciranda
