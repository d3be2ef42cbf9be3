// UnnamedRounds: this rank's calls without a name (unnamed.hpp), as far as they come to direct rounds; in memory. Of
// these calls one at a time may be at a round, and none is in the log then: that is why the ranks agree on which call
// is the next. Pure.
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
  // All of these outlive it. `op`: that of all calls without a name.
  UnnamedRounds(PersistentOp& op, DirectRounds& rounds, PendingCalls& calls)
      : op_(op), rounds_(rounds), calls_(calls) {}

  PersistentOp& op() { return op_; }
  bool has_come() const { return op_.state() == PersistentOp::State::kInMemory; }

  // As of DirectRounds; a call is the `nth` without a name of this rank. REQUIRES: is_unnamed(request.name).
  std::optional<DirectRound> come(const Request& request, Ticket ticket);
  // Of a call for which no ticket is made. REQUIRES: this rank has not joined.
  std::optional<DirectRound> round_for(const Call& call, std::uint64_t nth) const;
  // Instead of DirectRounds::missed(): its ticket, of a request to submit.
  Ticket missed();
  // Others came with another call: none of them is carried out.
  void give_up() { DirectRounds::close(op_); }

  // The log executes such a call. All members do so at the same place of it, whatever they have called since.
  // `first_dims`: null where they cannot differ.
  void open(const Signature& signature, std::shared_ptr<const FirstDims> first_dims,
            std::vector<DirectRound>& to_close);

 private:
  // `n_bytes`: what a member contributes.
  DirectRound next(std::uint32_t signature, std::size_t n_bytes, std::uint64_t nth) const;

  PersistentOp& op_;
  DirectRounds& rounds_;
  PendingCalls& calls_;
  UnnamedSignatures signatures_;
};

}  // namespace ciranda
