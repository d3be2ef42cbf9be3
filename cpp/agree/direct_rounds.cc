#include "agree/direct_rounds.hpp"

#include <utility>

namespace ciranda {

using State = PersistentOp::State;

// --- a call

std::optional<DirectRound> DirectRounds::arrive(Direct by, PersistentOp& op, const Request& request, Ticket ticket) {
  if (!is_open(op, by) || op.known() != request.signature) return std::nullopt;
  // By messages, the others continue without a rank that joins, so it has missed rounds of the name.
  const bool is_in_memory = by == Direct::kInMemory;
  const bool may_arrive =
      is_in_memory ? fits(request, *op.rounds.room_) : op.rounds.n_joins_ == calls_.n_joins() && !request.is_deferrable;
  if (!may_arrive) return std::nullopt;
  op.become(is_in_memory ? State::kInMemory : State::kByMessages);
  calls_.add(op, {ticket});
  return next(op, ticket);
}

std::optional<DirectRound> DirectRounds::round_for(PersistentOp& op, const Call& call) {
  if (!is_open(op, Direct::kInMemory) || !is_of(*op.known(), call)) return std::nullopt;
  return next(op);
}

Ticket DirectRounds::done(PersistentOp& op) {
  ++op.rounds.next_;
  return calls_.take(op);
}

ReadyMessage DirectRounds::missed(PersistentOp& op) {
  op.become(State::kReported);
  close(op);
  return ReadyMessage{{{op.cache_id(), false}}};
}

std::optional<DirectRound> DirectRounds::avoid(PersistentOp& op) {
  if (op.rounds.direct_ != Direct::kInMemory) return std::nullopt;
  close(op);
  return next(op);
}

bool DirectRounds::keep_duplicate(PersistentOp& op, Ticket ticket) {
  if (op.state() != State::kByMessages) return false;
  calls_.add_late(op, ticket);
  close(op);
  return true;
}

// --- a name

void DirectRounds::open(PersistentOp& op, Direct direct) {
  if (direct == Direct::kNot) return close(op);
  if (direct == Direct::kByMessages) return begin(op, direct);
  const auto room = room_for(*op.known(), op.first_dims().get(), rooms_.has_buffers());
  if (room) open(op, *room);
}

bool DirectRounds::open(PersistentOp& op, const Room& room) {
  if (!op.rounds.room_ || op.rounds.room_->n_bytes < room.n_bytes) op.rounds.room_ = rooms_.take(room);
  if (!op.rounds.room_) return false;
  op.rounds.room_->is_in_buffer = room.is_in_buffer;  // all members have finished the previous round
  op.rounds.room_->n_exact_bytes = room.n_exact_bytes;
  begin(op, Direct::kInMemory);
  return true;
}

// The previous round may have been closed. All members count it, whether or not each of them arrived at it.
void DirectRounds::begin(PersistentOp& op, Direct direct) {
  ++op.rounds.next_;
  op.rounds.direct_ = direct;
  op.rounds.n_joins_ = calls_.n_joins();
}

void DirectRounds::close(PersistentOp& op, std::vector<DirectRound>& to_close) {
  if (const auto round = avoid(op)) to_close.push_back(*round);
  close(op);
}

// The count that all ranks share continues, so a late message for an old round does not match a new one.
void DirectRounds::hand_over(PersistentOp& from, PersistentOp& to) {
  close(from);
  to.rounds.next_ = std::exchange(from.rounds.next_, 0);
  to.rounds.room_ = std::exchange(from.rounds.room_, std::nullopt);
}

std::optional<NoInputMessage> DirectRounds::cancel(PersistentOp& op, std::uint64_t round) {
  const bool has_arrived = round < op.rounds.next_ || (round == op.rounds.next_ && op.state() == State::kByMessages);
  if (has_arrived) return std::nullopt;
  close(op);  // even if this rank still lacks inputs to the previous round
  return NoInputMessage{op.cache_id(), round};
}

}  // namespace ciranda
