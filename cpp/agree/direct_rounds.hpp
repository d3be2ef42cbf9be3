// DirectRounds: this rank's calls of names that the log has opened to *direct rounds*. A direct round is executed
// without the log, if all ranks arrive at it (contribute). In memory (round_rooms.hpp) a rank does not report such a
// call; a rank that does report its call closes the round first: avoid(). By messages (sent_inputs.hpp) a rank sends
// its input to all ranks, which is also its report, and the log may answer it. In both, calls of a name stay paired,
// and all ranks count the same rounds. Called by Participant, KnownNames, UnnamedRounds, Lane, RoundsInMemory and
// RoundsByMessages; types used by RoundMemory; pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "agree/messages.hpp"
#include "agree/pending_calls.hpp"
#include "agree/persistent_op.hpp"
#include "agree/round_rooms.hpp"
#include "call/call.hpp"
#include "call/request.hpp"

namespace ciranda {

// One direct round of a name.
struct DirectRound {
  PersistentOp* op = nullptr;
  ReservedRoom room;  // in memory
  std::uint64_t number = 0;
  const FirstDims* first_dims = nullptr;  // null if first dimensions cannot differ; valid while the round is pending
  std::uint32_t tag = 0;                  // identifies a call without a name; must be equal on all ranks
  Ticket ticket = kNoTicket;              // of the call that has arrived at the round: see DirectRounds::arrive()
  bool is_unnamed() const { return op->is_unnamed(); }
};

class DirectRounds {
 public:
  // `calls` outlives this object.
  DirectRounds(RoundRooms rooms, PendingCalls& calls) : rooms_(rooms), calls_(calls) {}

  bool has_buffers() const { return rooms_.has_buffers(); }

  // --- a call

  // Replaces Participant::submit(), if the name is open to direct rounds and the request may take part. The request is
  // then pending until done(), or missed() in memory, or until the log answers a request sent by messages. Returns none
  // if the caller must submit() the request.
  std::optional<DirectRound> arrive(Direct by, PersistentOp& op, const Request& request, Ticket ticket);
  // All ranks have arrived, and this rank may execute the call. REQUIRES: this rank has arrived at a round of the name.
  Ticket done(PersistentOp& op);
  // The round in memory is closed. Returns the report for the coordinator. REQUIRES: as for done().
  static ReadyMessage missed(PersistentOp& op);
  // The round in memory for a call that has no ticket yet. Changes no state. If all ranks arrive, done_at_once()
  // replaces arrive() and done(); if others are late, arrive() makes the call pending.
  static std::optional<DirectRound> round_for(PersistentOp& op, const Call& call);
  // REQUIRES: the name was not used since round_for().
  static void done_at_once(PersistentOp& op) { ++op.rounds.next_; }
  // Called before Participant::submit() if arrive() was not tried. Returns the round in memory at which others might
  // arrive; the caller must close it first.
  static std::optional<DirectRound> avoid(PersistentOp& op);
  // If a call of the name is in a round by messages, keeps this duplicate of it until the round is over. Otherwise
  // false.
  bool keep_duplicate(PersistentOp& op, Ticket ticket);

  // --- a name

  // Whether the next call of the name may use a direct round.
  static bool is_open(const PersistentOp& op, Direct by) { return op.rounds.direct_ == by && op.is_idle(); }
  static DirectRound next(PersistentOp& op, Ticket ticket = kNoTicket) {
    return {&op, op.rounds.room_.value_or(ReservedRoom{}), op.rounds.next_, op.first_dims().get(), 0, ticket};
  }
  // All members open a name at the same position of the log, with the same signature. If no room in memory is left,
  // nothing changes, and the second overload returns false.
  void open(PersistentOp& op, Direct direct);
  bool open(PersistentOp& op, const Room& room);
  static void close(PersistentOp& op) { op.rounds.direct_ = Direct::kNot; }
  // Also adds to `to_close` the round in memory at which others might arrive.
  static void close(PersistentOp& op, std::vector<DirectRound>& to_close);
  // The cache id now belongs to another name.
  static void hand_over(PersistentOp& from, PersistentOp& to);
  // The log cancels a round by messages. The answer states that this rank will not arrive; none if it has arrived.
  static std::optional<NoInputMessage> cancel(PersistentOp& op, std::uint64_t round);

 private:
  void begin(PersistentOp& op, Direct direct);

  RoundRooms rooms_;
  PendingCalls& calls_;
};

}  // namespace ciranda
