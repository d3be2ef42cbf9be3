// Reports: what one rank tells the coordinator of a lane, so that what is reported in one iteration travels in one
// frame; and that calls which are held for the rest of their planned group are not held for long.
//
// One thread (the holder of the progress lock).
#pragma once

#include <optional>

#include "agree/participant.hpp"
#include "engine/control_plane.hpp"
#include "engine/holding.hpp"
#include "engine/lane_log.hpp"

namespace ciranda {

class Reports {
 public:
  // All outlive this.
  Reports(Participant& participant, LaneLog& log, ControlPlane& control);

  // As the participant says it: with others that can travel along; all else at once, and what is held before it.
  void add(Message message, TimePoint now);
  // Of duplicates that came while their name was at a round by messages: see Participant::take_late().
  void add_late(TimePoint now);
  // At once, behind what was added.
  void say(const Message& message, TimePoint now);
  void send(TimePoint now);
  // Those that were held for long enough, too.
  void send_due(TimePoint now);
  std::optional<TimePoint> due() const { return holding_.due(); }

  // Somebody here waits and nothing may be held back, until there are other calls. False: that is known.
  bool say_waiting();
  // To the coordinator, who reports something waits no longer.
  void say_if_waiting(TimePoint now) {
    if (is_waiting_) say(WaitingMessage{}, now);
  }
  bool is_waiting() const { return is_waiting_; }
  void expect_more() { is_waiting_ = false; }

 private:
  void release(TimePoint now);

  Participant& participant_;
  LaneLog& log_;
  ControlPlane& control_;
  ReadyMessage ready_;
  GroupsMessage groups_;
  Holding holding_;
  bool is_waiting_ = false;
};

}  // namespace ciranda
