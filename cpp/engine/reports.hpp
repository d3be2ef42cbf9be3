// Reports: one rank's reports to the coordinator of a lane. Sends the reports of one iteration in one frame, and limits
// how long calls are held for the rest of their planned group.
//
// Called by Lane, AnswerWatch, RoundsInMemory and RoundsByMessages, through LaneParts; one thread (the holder of the
// progress lock).
#pragma once

#include <optional>

#include "agree/held_groups.hpp"
#include "agree/pending_calls.hpp"
#include "engine/control_plane.hpp"
#include "engine/holding.hpp"
#include "engine/lane_log.hpp"

namespace ciranda {

class Reports {
 public:
  // All arguments outlive this.
  Reports(HeldGroups& held, PendingCalls& calls, LaneLog& log, ControlPlane& control);

  // Adds a report. Cache ids and groups wait for send(). Any other message, as a signature, is sent at once, after all
  // reports that were added or held before it.
  void add(Message message, TimePoint now);
  // Reports the duplicates that were called while their name was at a round by messages: see PendingCalls::take_late().
  void add_late(TimePoint now);
  // Sends the added reports, and then `message`.
  void send(const Message& message, TimePoint now);
  // Sends the added reports.
  void send(TimePoint now);
  // Also sends calls that were held for long enough.
  void send_due(TimePoint now);
  std::optional<TimePoint> due() const { return holding_.due(); }

  // Reports that a thread of this rank waits, so that nothing is held back until its next call. Returns false if that
  // was reported already.
  bool report_waiting();
  // Repeats the report: for the coordinator, a rank stops waiting when it reports anything else.
  void repeat_waiting(TimePoint now) {
    if (is_waiting_) send(WaitingMessage{}, now);
  }
  bool is_waiting() const { return is_waiting_; }
  void expect_more() { is_waiting_ = false; }

 private:
  void release(TimePoint now);

  HeldGroups& held_;
  PendingCalls& calls_;
  LaneLog& log_;
  ControlPlane& control_;
  ReadyMessage ready_;
  GroupsMessage groups_;
  Holding holding_;
  bool is_waiting_ = false;
};

}  // namespace ciranda
