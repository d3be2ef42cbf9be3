#include "agree/pending_calls.hpp"

namespace ciranda {

using State = PersistentOp::State;

void PendingCalls::add(PersistentOp& op, PendingCall call) {
  ++n_;
  if (call.is_numbered) ++n_numbered_;
  op.calls.pending_.push_back(std::move(call));
}

void PendingCalls::add_late(PersistentOp& op, Ticket ticket) {
  add(op, {ticket});
  ++op.calls.n_late_;
}

Ticket PendingCalls::take(PersistentOp& op) {
  const Ticket ticket = op.calls.pending_.front().ticket;
  if (op.calls.pending_.front().is_numbered) --n_numbered_;
  op.calls.pending_.erase(op.calls.pending_.begin());
  --n_;
  op.become(op.calls.pending_.empty() ? State::kIdle : State::kReported);
  late_.insert(late_.end(), std::exchange(op.calls.n_late_, 0), DuplicateMessage{op.name()});
  return ticket;
}

std::optional<std::string> PendingCalls::sweep(bool counts_deferrable) {
  std::optional<std::string> never_answered;
  ops_.for_each(lane_, [&](PersistentOp& op) {
    if (!op.is_reported()) return;  // will be reported soon
    for (PendingCall& call : op.calls.pending_) {
      if (call.is_deferrable && !counts_deferrable) continue;
      if (++call.n_sweeps >= kMostSweeps) never_answered = op.name();
    }
  });
  return never_answered;
}

}  // namespace ciranda
