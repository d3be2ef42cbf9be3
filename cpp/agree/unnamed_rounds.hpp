// UnnamedRounds: this rank's calls without a name (unnamed.hpp) in direct rounds, which are in memory. At most one of
// these calls is in a round, and then none is in the log: so the ranks agree on which call is the next.
//
// Without it such calls go by the log: 23 to 25 us instead of 3 to 6 for 4 bytes between two ranks, from Python
// (measured in turns by CIRANDA_DIRECT_ROUNDS=0). The guard's row: "a call without a name, beside one with".
//
// Called by Participant, Lane, RoundsInMemory; pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "agree/direct_rounds.hpp"
#include "agree/unnamed.hpp"

namespace ciranda {

class UnnamedRounds {
 public:
  // The arguments outlive this object. `op`: shared by all calls without a name.
  UnnamedRounds(PersistentOp& op, DirectRounds& rounds, PendingCalls& calls)
      : op_(op), rounds_(rounds), calls_(calls) {}

  PersistentOp& op() { return op_; }
  bool has_arrived() const { return op_.state() == PersistentOp::State::kInMemory; }

  // As DirectRounds::arrive(). REQUIRES: is_unnamed(request.name).
  std::optional<DirectRound> arrive(const Request& request, Ticket ticket);
  // For a call that has no ticket yet: this rank's `nth` call without a name. REQUIRES: this rank has not joined.
  std::optional<DirectRound> round_for(const Call& call, std::uint64_t nth) const;
  // Replaces DirectRounds::missed(): returns the ticket of the request, which must be submitted.
  Ticket missed();
  // Other ranks arrived with another call: no rank executes it, and the log takes over.
  void give_up() { DirectRounds::close(op_); }

  // The log executes a call without a name. All members do this at the same position of the log, whatever they have
  // called since. `first_dims`: null if they cannot differ.
  void open(const Signature& signature, std::shared_ptr<const FirstDims> first_dims,
            std::vector<DirectRound>& to_close);

 private:
  // `n_bytes`: a member's contribution.
  DirectRound next(std::uint32_t signature, std::size_t n_bytes, std::uint64_t nth) const;

  PersistentOp& op_;
  DirectRounds& rounds_;
  PendingCalls& calls_;
  UnnamedSignatures signatures_;
};

}  // namespace ciranda
