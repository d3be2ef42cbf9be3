// PendingCalls: this rank's calls of a lane that are not answered yet, and its join, if it has no more work. Those of a
// name are answered in their order. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agree/messages.hpp"
#include "agree/persistent_op.hpp"
#include "agree/persistent_ops.hpp"

namespace ciranda {

class PendingCalls {
 public:
  PendingCalls(LaneId lane, PersistentOps& ops) : lane_(lane), ops_(ops) {}

  // What becomes of the operation's state is for the caller to say, if it is idle.
  void add(PersistentOp& op, PendingCall call);
  // A duplicate of a call that is at a round by messages. It is told when that is over, by take_late(): told before, it
  // would fail what others may have carried out.
  void add_late(PersistentOp& op, Ticket ticket);
  // After any has been answered: what to tell the coordinator now.
  std::vector<DuplicateMessage> take_late() { return std::exchange(late_, {}); }

  // The oldest is answered. REQUIRES: the operation is not idle.
  Ticket take(PersistentOp& op);

  // What to tell the coordinator, once nothing is held. REQUIRES: has_joined() is false.
  JoinMessage join(Ticket ticket) {
    join_ = ticket;
    return {++n_joins_};
  }
  // All ranks have. REQUIRES: has_joined().
  Ticket end_join() { return std::exchange(join_, kNoTicket); }
  bool has_joined() const { return join_ != kNoTicket; }
  std::uint64_t n_joins() const { return n_joins_; }

  bool any() const { return n_ > 0 || has_joined(); }
  static std::size_t count(const PersistentOp& op) { return op.pending_.size(); }
  // Calls without a name, under the numbers that they were given.
  bool has_numbered() const { return n_numbered_ > 0; }

  // What was told to somebody, or has come back, may be lost to an error of ours, or of a machine. Then no other rank
  // sees that this one waits. So this is asked at intervals that are longer than an answer takes: a call that is
  // pending at the kMostSweeps-th will never be answered; its name. Those that may be held back are counted if it is
  // said so.
  static constexpr int kMostSweeps = 3;
  std::optional<std::string> sweep(bool counts_deferrable);
  // A join has to wait for as long as the others work. But it can be said again, and must be at such intervals.
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
