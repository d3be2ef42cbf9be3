#include "agree/unnamed_rounds.hpp"

#include <utility>

namespace ciranda {

DirectRound UnnamedRounds::next(std::uint32_t signature, std::size_t n_bytes, std::uint64_t nth) const {
  DirectRound round = DirectRounds::next(op_);
  round.room.n_exact_bytes = n_bytes;
  round.room.is_in_buffer = goes_in_buffer(n_bytes, rounds_.has_buffers());
  round.first_dims = signatures_.first_dims_of(signature);
  round.tag = static_cast<std::uint32_t>(nth * UnnamedSignatures::kMost + signature);
  return round;
}

std::optional<DirectRound> UnnamedRounds::arrive(const Request& request, Ticket ticket) {
  if (!DirectRounds::is_open(op_, Direct::kInMemory)) return std::nullopt;
  const auto signature = signatures_.find(request.signature);
  if (!signature) return std::nullopt;
  const std::size_t n_bytes = *exact_bytes_of(request.signature, signatures_.first_dims_of(*signature));
  DirectRound round = next(*signature, n_bytes, number_of(request.name));
  round.ticket = ticket;
  op_.become(PersistentOp::State::kInMemory);
  calls_.add(op_, {ticket});
  return round;
}

std::optional<DirectRound> UnnamedRounds::round_for(const Call& call, std::uint64_t nth) const {
  if (!DirectRounds::is_open(op_, Direct::kInMemory)) return std::nullopt;
  const auto signature = signatures_.find(call);
  return signature ? std::optional(next(*signature, call.tensors.front().n_bytes(), nth)) : std::nullopt;
}

Ticket UnnamedRounds::missed() {
  give_up();
  return calls_.take(op_);
}

void UnnamedRounds::open(const Signature& signature, std::shared_ptr<const FirstDims> first_dims,
                         std::vector<DirectRound>& to_close) {
  if (!UnnamedSignatures::may_go_direct(signature, first_dims.get(), rounds_.has_buffers())) return;
  if (!rounds_.open(op_, Room{UnnamedSignatures::kHeadBytes + UnnamedSignatures::kMostBytes})) return;
  signatures_.learn(signature, std::move(first_dims));
  if (calls_.has_numbered()) DirectRounds::close(op_, to_close);
}

}  // namespace ciranda
