// Members: the ranks of a lane as its coordinator knows them: which ranks, the last report of each, which ones wait,
// and which have joined. "Member" is a rank's index among them; texts for people show world ranks.
// Called by Coordinator, which owns it, Failures, Negotiation, Negotiations, OpenNegotiations, PlannedGroup,
// PlannedGroups and Standstill; seconds_text() also by AnswerWatch; pure.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "call/op_table.hpp"

namespace ciranda {

using TimePoint = std::chrono::steady_clock::time_point;

// "2.5 s"
std::string seconds_text(std::chrono::nanoseconds duration);

// From the first report of a call to the last one.
struct HeldUp {
  int last;  // the member that reported it last
  TimePoint from;
  TimePoint until;
};

// A member has reported a call.
struct ArrivedCall {
  int member;
  std::string name;
  Collective collective;
};

class Members {
 public:
  // `ranks`: world ranks, ascending; empty: 0 to size - 1. `hosts`: labels by member; may be empty.
  Members(int size, std::vector<int> ranks, std::vector<std::string> hosts);

  int size() const { return static_cast<int>(ranks_.size()); }
  const std::vector<int>& ranks() const { return ranks_; }
  int rank(int member) const { return ranks_[static_cast<std::size_t>(member)]; }
  // REQUIRES: the rank belongs to a member.
  int member(int rank) const;

  // A member that reports a call no longer counts as waiting; if another of its threads waits, it says so again.
  void note_report(int member, const std::string& name, TimePoint now);
  // All members have reported this name, or executed a direct round of it; members that wait still do.
  void note_report_of_all(const std::string& name, TimePoint now);
  void waits(int member);
  bool has_waiting() const { return n_waiting_ > 0; }
  bool is_waiting(int member) const { return is_waiting_[static_cast<std::size_t>(member)]; }

  // `member` was the last to report a call, which the first had reported at `from`. Ignored if `from` equals `until`.
  void note_last(int member, TimePoint from, TimePoint until) {
    if (from < until) held_up_.push_back({member, from, until});
  }
  bool has_held_up() const { return !held_up_.empty(); }
  std::vector<HeldUp> take_held_up() { return std::exchange(held_up_, {}); }

  // While they are kept: the member has reported this call. Of those in one message, the first kMostArrivals are kept.
  void note_arrival(int member, const std::string& name, Collective collective) {
    if (keeps_arrivals_ && arrivals_.size() < kMostArrivals) arrivals_.push_back({member, name, collective});
  }
  void keep_arrivals(bool keeps) { keeps_arrivals_ = keeps; }
  bool keeps_arrivals() const { return keeps_arrivals_; }
  bool has_arrivals() const { return !arrivals_.empty(); }
  std::vector<ArrivedCall> take_arrivals() { return std::exchange(arrivals_, {}); }

  void join(int member);
  bool has_joined(int member) const { return has_joined_[static_cast<std::size_t>(member)]; }
  bool has_any_joined() const { return n_joined_ > 0; }
  int n_joined() const { return n_joined_; }
  // The member that joined last, once all have joined.
  std::optional<int> last_joined() const;
  // No member counts as joined from now on. REQUIRES: all have joined.
  void return_all();

  std::string text(int member) const;                      // "rank 3 (host node7)"
  std::string rank_text(int member) const;                 // "rank 3"
  std::string joined_text() const;                         // "ranks 1, 3": those that have joined
  std::string last_text(int member, TimePoint now) const;  // as text(), with the member's last call

 private:
  std::vector<int> ranks_;
  std::vector<std::string> hosts_;
  std::vector<bool> is_waiting_;
  int n_waiting_ = 0;
  std::vector<bool> has_joined_;
  int n_joined_ = 0;
  int last_joined_ = -1;
  // The last report of a member, or the last direct round of all members. Ordered by `nth`, because clocks may be
  // coarse.
  struct LastReport {
    std::string name;
    TimePoint when;
    std::uint64_t nth = 0;
  };

  void note(LastReport& last, const std::string& name, TimePoint now);

  std::vector<LastReport> last_reports_;
  LastReport last_of_all_;
  std::uint64_t n_noted_ = 0;
  std::vector<HeldUp> held_up_;  // not taken yet
  static constexpr std::size_t kMostArrivals = 1024;
  bool keeps_arrivals_ = false;
  std::vector<ArrivedCall> arrivals_;  // not taken yet
};

}  // namespace ciranda
