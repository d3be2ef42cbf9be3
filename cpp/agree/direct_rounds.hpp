// DirectRounds: this rank's calls of names that the log has opened to *direct rounds*: they may be carried out without
// the log, if all ranks come to the round. In memory (round_places.hpp) such a call is not reported, and a rank that
// reports it instead closes the round: avoid(). By messages (sent_inputs.hpp) it is reported by what all ranks
// are sent, and the log may answer it. Either way the name's calls stay paired, and all ranks count the same rounds.
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "agree/messages.hpp"
#include "agree/pending_calls.hpp"
#include "agree/persistent_op.hpp"
#include "agree/round_places.hpp"
#include "call/call.hpp"
#include "call/request.hpp"

namespace ciranda {

// A round of a name that ranks carry out without the log.
struct DirectRound {
  PersistentOp* op = nullptr;
  RoundPlace place;  // in memory
  std::uint64_t number = 0;
  const FirstDims* first_dims = nullptr;  // null where first dimensions cannot differ; valid while it is pending
  std::uint32_t tag = 0;                  // of a call without a name: which call it is, which all must say alike
  Ticket ticket = kNoTicket;              // of the call that has come to it: see DirectRounds::come()
  bool is_unnamed() const { return op->is_unnamed(); }
};

class DirectRounds {
 public:
  // The calls outlive this.
  DirectRounds(RoundPlaces places, PendingCalls& calls) : places_(places), calls_(calls) {}

  bool has_buffers() const { return places_.has_buffers(); }

  // --- a call

  // Instead of Participant::submit(), if the name is open to such rounds and the request may come to one: it is then
  // pending until done(), or missed() in memory, or until the log answers what came by messages. None: submit it.
  std::optional<DirectRound> come(Direct by, PersistentOp& op, const Request& request, Ticket ticket);
  // All have come; this rank may carry it out. REQUIRES: this rank has come to a round of it.
  Ticket done(PersistentOp& op);
  // The round in memory is closed; what to tell the coordinator instead. REQUIRES: as above.
  static ReadyMessage missed(PersistentOp& op);
  // Of a call for which no ticket is made: the round in memory that it may come to. It leaves no trace here: once all
  // have come done_at_once() says so, in place of come() and done(); and if that takes long, come() makes it pending.
  static std::optional<DirectRound> round_for(PersistentOp& op, const Call& call);
  // REQUIRES: nothing was done with the name since round_for().
  static void done_at_once(PersistentOp& op) { ++op.next_round_; }
  // Before Participant::submit(), where come() was not tried: the round in memory that others might come to, which is
  // to be closed first.
  static std::optional<DirectRound> avoid(PersistentOp& op);
  // Instead of all these, for a name of which this rank has come to a round by messages: false if there is none.
  bool come_late(PersistentOp& op, Ticket ticket);

  // --- a name

  // Whether its next call may come to a round.
  static bool is_open(const PersistentOp& op, Direct by) { return op.direct_ == by && op.is_idle(); }
  static DirectRound next(PersistentOp& op, Ticket ticket = kNoTicket) {
    return {&op, op.place_.value_or(RoundPlace{}), op.next_round_, op.first_dims_.get(), 0, ticket};
  }
  // All members do these at the same place of the log, with the same signature. In memory there may be no place for it;
  // then nothing is done, and the second says so.
  void open(PersistentOp& op, Direct direct);
  bool open(PersistentOp& op, const Room& room);
  static void close(PersistentOp& op) { op.direct_ = Direct::kNot; }
  // And the round in memory that others might come to is to be closed.
  static void close(PersistentOp& op, std::vector<DirectRound>& to_close);
  // The cache id goes to another name.
  static void hand_over(PersistentOp& from, PersistentOp& to);
  // The log cancels the round. The answer is that this rank will not come to it by messages; none if it has.
  static std::optional<NoInputMessage> cancel(PersistentOp& op, std::uint64_t round);

 private:
  void begin(PersistentOp& op, Direct direct);

  RoundPlaces places_;
  PendingCalls& calls_;
};

}  // namespace ciranda
