// RoundsInMemory: this rank's calls in direct rounds in shared memory, which need no coordinator
// (agree/direct_rounds.hpp says when). Each member writes its contribution to the lane's shared memory. When all have
// arrived, each member combines the contributions. This costs two cache-line transfers, instead of a report, an entry
// of the log, and a collective.
//
// A round requires ranks that poll. Before a rank sleeps, it closes the round and reports the call as any other. So a
// rank that arrives later wakes it in the ordinary way. An early call (request.hpp) is the exception: its rank may
// sleep before its thread waits. A rank that closes the round wakes it.
//
// Called by Lane and ProgressLoop; one thread (the holder of the progress lock).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "agree/direct_rounds.hpp"
#include "call/call.hpp"
#include "call/operation.hpp"
#include "engine/lane_parts.hpp"
#include "engine/round_memory.hpp"
#include "execute/round_data.hpp"
#include "transport/arena.hpp"
#include "transport/arrivals.hpp"

namespace ciranda {

class RoundsInMemory {
 public:
  explicit RoundsInMemory(const LaneParts& lane) : lane_(lane), n_unnamed_(lane.names.automatic.n_unnamed(lane.id)) {}

  // Returns whether the call is handled here: it is done, or pending at a round, or reported because the round is
  // closed. If it returns false, it has closed the round of this name at which other ranks may arrive.
  bool arrive(PersistentOp& op, Ticket ticket, TimePoint now) REQUIRES(progress_lock);

  // Tries a repeated blocking call, which all ranks have agreed on before, with a name or without (agree/unnamed.hpp).
  // If all ranks arrive at the same time, it needs no request, and no operation if the caller has given memory for the
  // result. Returns a null operation if the call has succeeded and its result is in the caller's memory. Otherwise
  // returns the call's operation, which is in flight, or done with an output. Returns nullopt if the call cannot be
  // executed so; then it has done nothing.
  using Outcome = std::optional<std::shared_ptr<Operation>>;
  // Polls the round up to `n_looks` times. `stages`: null if they are not recorded. REQUIRES: the lane has an arena,
  // this rank has not joined, and the call may be repeated.
  Outcome repeat(PersistentOp& op, const Call& call, Stages* stages, int n_looks) REQUIRES(progress_lock);

  // Closes a round because this rank does not take part. REQUIRES: it has not arrived at the round.
  void close(const DirectRound& round);
  void close(const std::vector<DirectRound>& rounds) {
    for (const DirectRound& round : rounds) close(round);
  }

  bool empty() const { return pending_.empty(); }
  bool holds(const Operation& operation) const;
  // Executes the calls at which all members have arrived, and reports those whose round is closed. Returns whether
  // there were any of either.
  bool poll(TimePoint now) REQUIRES(progress_lock) { return !pending_.empty() && look(false, now); }
  // No thread of this rank polls any longer. Closes all incomplete rounds and reports their calls.
  void withdraw() REQUIRES(progress_lock) {
    if (!pending_.empty()) look(true, std::chrono::steady_clock::now());
  }

 private:
  std::optional<DirectRound> round_for(const SharedArena& arena, PersistentOp& op, Ticket ticket) const;
  std::optional<DirectRound> round_for(const SharedArena& arena, PersistentOp& op, const Call& call) const;
  void avoid(PersistentOp& op, const Request& request) REQUIRES(progress_lock);
  bool close_for_all(Arrivals arrivals, std::uint64_t round, int n_own);
  bool look(bool closes, TimePoint now) REQUIRES(progress_lock);
  void report_missed(PersistentOp& op, TimePoint now);

  int root_of(const Terms& terms) const;
  RoundCall call_of(const Submission& entry, std::span<const DirectTensor> tensors) const;
  bool enter(SharedArena& arena, const DirectRound& round, const RoundCall& call, Stages* stages);
  void gather(const SharedArena& arena, const DirectRound& round, const RoundCall& call);
  void note_done(const SharedArena& arena, const DirectRound& round) REQUIRES(progress_lock);
  Status carry_out(const SharedArena& arena, const DirectRound& pending) REQUIRES(progress_lock);

  void note_agreed(Ticket ticket, Path path) REQUIRES(progress_lock);

  std::shared_ptr<Operation> wait_at(const DirectRound& round, const Call& call, const Stages* stages)
      REQUIRES(progress_lock);
  void show(const Call& call, std::size_t n_bytes, Stages& stages);

  const LaneParts lane_;
  std::uint64_t& n_unnamed_;  // this rank's calls without a name
  std::vector<DirectRound> pending_;
  // By the number of their room; rounds to close once there is an arena.
  std::unordered_map<std::uint32_t, DirectRound> to_close_;
  RoundMemory memory_;
  std::vector<const std::byte*> contributed_;  // the contributions that a call combines
};

}  // namespace ciranda
