#include "agree/unnamed_rounds.hpp"

namespace ciranda {

std::optional<DirectRound> UnnamedRounds::next(std::optional<std::uint32_t> signature, std::size_t n_bytes,
                                               std::uint64_t nth) const {
  if (!signature) return std::nullopt;
  DirectRound round = DirectRounds::next(op_);
  round.place.n_exact_bytes = n_bytes;
  round.tag = static_cast<std::uint32_t>(nth * UnnamedSignatures::kMost + *signature);
  return round;
}

std::optional<DirectRound> UnnamedRounds::come(const Request& request, std::uint64_t nth, Ticket ticket) {
  if (!DirectRounds::is_open(op_, Direct::kInMemory)) return std::nullopt;
  auto round = next(signatures_.find(request.signature), request.signature.n_bytes(), nth);
  if (!round) return std::nullopt;
  round->ticket = ticket;
  op_.become(PersistentOp::State::kInMemory);
  calls_.add(op_, {ticket});
  return round;
}

std::optional<DirectRound> UnnamedRounds::round_for(const Call& call, std::uint64_t nth) const {
  if (!DirectRounds::is_open(op_, Direct::kInMemory) || calls_.has_joined()) return std::nullopt;
  return next(signatures_.find(call), call.n_bytes(), nth);
}

Ticket UnnamedRounds::missed() {
  give_up();
  return calls_.take(op_);
}

void UnnamedRounds::open(const Signature& signature, std::vector<DirectRound>& to_close) {
  if (!UnnamedSignatures::may_meet(signature)) return;
  if (!rounds_.open(op_, Room{UnnamedSignatures::kHeadBytes + UnnamedSignatures::kMostBytes})) return;
  signatures_.learn(signature);
  if (calls_.has_numbered()) DirectRounds::close(op_, to_close);
}

}  // namespace ciranda
