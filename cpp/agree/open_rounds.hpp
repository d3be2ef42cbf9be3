// OpenRounds: how many rounds of a lane are open, when they must next be looked at, and which of them have stalled:
// some rank never comes. Says who is missing, and which rounds are to end. Pure.
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
  std::vector<Failing> failing;      // told of while all of them are open
  std::vector<CancelEntry> cancelled;
};

class OpenRounds {
 public:
  explicit OpenRounds(const CoordinatorOptions& options) : options_(options) {}

  // A round, of a name or a planned group, which opened then.
  void opened(TimePoint when) {
    ++n_open_;
    if (!due_) due_ = first_due(when);
  }
  void closed() {
    if (--n_open_ == 0) due_.reset();
  }
  std::size_t n_open() const { return n_open_; }

  // Now a round may fail that could not before, and has been due since then.
  void look_at(TimePoint when) { due_ = when; }
  // When check() should next be called; none while nothing waits.
  const std::optional<TimePoint>& due() const { return due_; }
  bool is_due(TimePoint now) const { return due_ && now >= *due_; }
  std::optional<TimePoint> first_due(TimePoint opened) const {
    return first_due(opened, opened + options_.stall.warning);
  }

  // Rounds that have waited for the warning time, and again whenever they have waited twice as long as they had when
  // they were last reported; those over the shutdown time are to fail. `groups_due`: when planned groups must be looked
  // at.
  Stalls check(const RoundsByName& names, const Members& members, std::optional<TimePoint> groups_due, TimePoint now);

 private:
  std::optional<TimePoint> first_due(TimePoint opened, TimePoint next_report) const;

  const CoordinatorOptions& options_;
  std::size_t n_open_ = 0;
  std::optional<TimePoint> due_;  // no later than the first report of an open round
};

}  // namespace ciranda
