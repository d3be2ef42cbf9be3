// Participant: the part that is about direct rounds of calls without a name (unnamed.hpp).
#include "agree/participant.hpp"

namespace ciranda {

// Of this rank's calls without a name one at a time may be at a round, and none is in the log then: that is why the
// ranks agree on which call is the next.
std::optional<Participant::DirectRound> Participant::unnamed_round(std::optional<std::uint32_t> signature,
                                                                   std::size_t n_bytes, std::uint64_t nth) const {
  if (!signature) return std::nullopt;
  DirectRound round = next_round(*unnamed_);
  round.place.n_exact_bytes = n_bytes;
  round.tag = static_cast<std::uint32_t>(nth * UnnamedSignatures::kMost + *signature);
  return round;
}

std::optional<Participant::DirectRound> Participant::come_unnamed(const Request& request, std::uint64_t nth,
                                                                  Ticket ticket) {
  if (unnamed_->direct_ == Direct::kNot || !unnamed_->pending_.empty()) return std::nullopt;
  const Signature& signature = request.signature;
  const auto round = unnamed_round(unnamed_signatures_.find(signature), signature.n_bytes(), nth);
  if (!round) return std::nullopt;
  unnamed_->become(State::kInMemory);
  unnamed_->pending_.push_back({ticket, nullptr});
  ++n_pending_;
  return round;
}

std::optional<Participant::DirectRound> Participant::round_for_unnamed(const Call& call, std::uint64_t nth) const {
  if (unnamed_->direct_ == Direct::kNot || !unnamed_->pending_.empty() || join_ != kNoTicket) return std::nullopt;
  return unnamed_round(unnamed_signatures_.find(call), call.n_bytes(), nth);
}

Participant::Ticket Participant::missed_unnamed() {
  close(*unnamed_);
  return take(*unnamed_).ticket;
}

// All members do so at the same place of the log, whatever they have called since.
void Participant::open_unnamed(const Signature& signature, std::vector<DirectRound>& to_close) {
  constexpr std::size_t kHeadBytes = 64;
  if (!UnnamedSignatures::may_meet(signature)) return;
  if (!unnamed_->place_) unnamed_->place_ = places_.take({kHeadBytes + UnnamedSignatures::kMostBytes});
  if (!unnamed_->place_) return;
  unnamed_signatures_.learn(signature);
  open(*unnamed_, Direct::kInMemory);
  if (n_unnamed_reported_ == 0) return;
  if (const auto round = avoid(*unnamed_)) to_close.push_back(*round);
}

}  // namespace ciranda
