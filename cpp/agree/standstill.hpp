// Standstill: whether the members of a lane wait for each other, so that none of their calls can ever be done.
//
// A member *stands* when each of its threads that could call waits for a call, and all of its pending calls are in this
// lane; it says so with the number of these calls and the place in the log that it has come to (StandingMessage),
// behind all that it has reported. It moves again by an answer alone. Once all members that have not joined stand, no
// answer is on its way to any of them, and each round lacks one of them, there will be no answer: what would bring it
// is a report, which a member makes only after an answer. Members that have joined report nothing until all have.
//
// That no answer is on its way is known by two numbers. Answers of the log: a member has come to its end. Direct
// rounds by messages, which are over without the log: the coordinator has as many open rounds of the member as it has
// calls. (Of all members the first to have moved since it stood was answered by reports from before any had moved, and
// these have come here before the words of those who sent them: here that round is over, and one is missing.)
//
// Pure. "Member": see members.hpp.
#pragma once

#include <cstdint>
#include <vector>

#include "agree/members.hpp"
#include "agree/messages.hpp"
#include "agree/open_rounds.hpp"
#include "agree/round.hpp"

namespace ciranda {

class Standstill {
 public:
  explicit Standstill(int n_members) : said_(static_cast<std::size_t>(n_members)) {}

  void stands(int member, const StandingMessage& said);
  // It has said anything else since.
  void moves(int member) { stands(member, {}); }

  // Whether all stand that have not joined, having executed a log of so many entries: cheap, and seldom so. Then
  // holds() tells. REQUIRES: of members that have joined it was said that they move.
  bool may_hold(const Members& members, std::uint64_t n_entries) const;
  // REQUIRES: may_hold(), no group is open, and what is ready or has failed is in the log.
  bool holds(const RoundsByName& names, const Members& members) const;

 private:
  std::vector<StandingMessage> said_;  // by member; without calls: it moves
  int n_standing_ = 0;
};

// What is to become of it: all rounds fail. But to a direct one a member may come that has been told of another's
// failure, before it is told of this one's: it is cancelled first, and the members say then that they stand still.
// REQUIRES: Standstill::holds().
Stalls end_standstill(const RoundsByName& names, const Members& members);

}  // namespace ciranda
