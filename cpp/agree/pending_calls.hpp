// PendingCalls: this rank's unanswered calls of a lane, and its join, if it has no more work. Calls of a name are
// answered in order. Called by Participant, DirectRounds, KnownNames, UnnamedRounds, Lane, Reports and AnswerWatch;
// pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agree/messages.hpp"
#include "agree/persistent_op.hpp"
#include "agree/persistent_ops.hpp"
#include "base/thread_annotations.hpp"

namespace ciranda {

class PendingCalls {
 public:
  PendingCalls(LaneId lane, PersistentOps& ops) : lane_(lane), ops_(ops) {}

  // If the operation is idle, the caller sets its new state.
  void add(PersistentOp& op, PendingCall call);
  // Adds a duplicate of a call that is in a round by messages. take_late() returns it once that round is over: reported
  // earlier, it would fail a call that other ranks may have executed.
  void add_late(PersistentOp& op, Ticket ticket);
  // The reports that are due after a call has been answered.
  std::vector<DuplicateMessage> take_late() { return std::exchange(late_, {}); }

  // The signature that the oldest call has reported in full; null if it was the known one, or was taken already.
  // REQUIRES: the operation is not idle.
  static std::unique_ptr<Signature> take_signature(PersistentOp& op) {
    return std::move(op.calls.pending_.front().in_full);
  }
  // Where the oldest call has its tensors. REQUIRES: as above.
  static HomeId home(const PersistentOp& op) { return op.calls.pending_.front().home; }
  // The oldest call is answered. REQUIRES: as above.
  Ticket take(PersistentOp& op);

  // The message for the coordinator, once no call is held. REQUIRES: has_joined() is false.
  JoinMessage join(Ticket ticket) {
    join_ = ticket;
    return {++n_joins_};
  }
  // All ranks have joined. REQUIRES: has_joined().
  Ticket end_join() { return std::exchange(join_, kNoTicket); }
  bool has_joined() const { return join_ != kNoTicket; }
  std::uint64_t n_joins() const { return n_joins_; }

  bool any() const { return n_ > 0 || has_joined(); }
  static std::size_t count(const PersistentOp& op) { return op.calls.pending_.size(); }
  // Calls without a name that the log handles under their number.
  bool has_numbered() const { return n_numbered_ > 0; }

  // A defect in Ciranda or in a machine may lose a report or its answer, and then no other rank sees that this rank
  // waits. So callers run this scan at intervals longer than an answer takes. Returns the name of a call that is still
  // pending at scan number kMostSweeps: it will never be answered. `counts_deferrable`: scan deferrable calls, too.
  static constexpr int kMostSweeps = 3;
  std::optional<std::string> sweep(bool counts_deferrable) REQUIRES(progress_lock);
  // A join waits for as long as the other ranks work. It may be repeated, and must be repeated at the same intervals.
  std::optional<JoinMessage> join_again() const {
    return has_joined() ? std::optional(JoinMessage{n_joins_}) : std::nullopt;
  }

 private:
  LaneId lane_;
  PersistentOps& ops_;
  std::vector<DuplicateMessage> late_;
  std::size_t n_ = 0;
  std::size_t n_numbered_ = 0;
  Ticket join_ = kNoTicket;
  std::uint64_t n_joins_ = 0;
};

}  // namespace ciranda
