// Standstill: whether the members of a lane wait for each other, so that none of their calls can ever complete.
//
// A member *stands* when each of its threads that could make a call waits for a pending one, and all of its pending
// calls are in this lane. It reports this (StandingMessage) after all its other reports, with the number of its pending
// calls and its position in the log. It moves again after an answer, or if a thread gives up its wait, which it
// reports. There will be no answer once three things hold: all members that have not joined stand; no answer is on its
// way to any of them; each negotiation lacks one of them. An answer needs a report, and a standing member makes calls
// only after an answer. Members that have joined report nothing until all have.
//
// Two numbers show that no answer is on its way. For the log: the member has executed all of it. For direct rounds by
// messages, which end without the log: the coordinator has as many open negotiations of the member as the member has
// pending calls. (Take the first member that moved after it stood. Reports sent before any member moved have answered
// it. They reached the coordinator before their senders' StandingMessages, so here that direct round is over, and the
// numbers differ.)
//
// Called by Coordinator and Negotiations; pure. "Member": see members.hpp.
#pragma once

#include <cstdint>
#include <vector>

#include "agree/members.hpp"
#include "agree/messages.hpp"
#include "agree/negotiation.hpp"
#include "agree/open_negotiations.hpp"

namespace ciranda {

class Standstill {
 public:
  explicit Standstill(int n_members) : reports_(static_cast<std::size_t>(n_members)) {}

  void stands(int member, const StandingMessage& report);
  // The member has sent another report since.
  void moves(int member) { stands(member, {}); }

  // Whether all members that have not joined stand, having executed n_entries of the log. Cheap, and rarely true; then
  // holds() decides. REQUIRES: moves() was called for members that have joined.
  bool may_hold(const Members& members, std::uint64_t n_entries) const;
  // REQUIRES: may_hold(), no group is open, and all ready or failed negotiations are in the log.
  bool holds(const NameStates& names, const Members& members) const;

 private:
  std::vector<StandingMessage> reports_;  // by member; n_pending is 0 if it moves
  int n_standing_ = 0;
};

// How a standstill ends: all negotiations fail. Direct rounds by messages are cancelled first, because a member that
// has learnt of the failure of another call could still arrive at one; their members then report again that they stand.
// REQUIRES: Standstill::holds().
Stalls end_standstill(const NameStates& names, const Members& members);

}  // namespace ciranda
