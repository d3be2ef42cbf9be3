// RoundsInMemory: this rank's calls that are carried out without the coordinator (agree/direct_rounds.hpp says when).
// A call leaves what it contributes in the memory that the lane's members share, and when all have come, each combines
// what lies there: two cache lines that change hands, instead of a report, an entry of the log, and a collective.
//
// A round is for ranks that wait and look. None sleeps over one: it closes the round first, and reports the call
// as any other, so that who comes later wakes it in the ordinary way. A rank that comes early (request.hpp) looks again
// when it waits; it may sleep before, and is woken by who closes the round.
//
// One thread (the holder of the progress lock).
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

  // Whether the call goes so: it is carried out, or pending at a round, or reported, as that is closed. Otherwise the
  // round to which others might come is closed.
  bool come(PersistentOp& op, Ticket ticket, TimePoint now);

  // A blocking call that all ranks have agreed on before is made again, under its name or without one
  // (agree/unnamed.hpp). Where they come at the same time it needs no request, nor an operation if the caller has given
  // memory for the result. A null operation: the call is done, was successful, and its result is in the memory that it
  // gave. Another: that of the call, in flight, or done with an output. None: it is no such call, or cannot be one now,
  // and nothing has been done.
  using Outcome = std::optional<std::shared_ptr<Operation>>;
  // Looks so many times whether all have come. `stages`: null unless they are to be recorded. REQUIRES: the lane
  // has an arena, and this rank has not joined.
  Outcome repeat(PersistentOp& op, const Call& call, Stages* stages, int n_looks);

  // This rank does not come. REQUIRES: it has not.
  void close(const DirectRound& round);
  void close(const std::vector<DirectRound>& rounds) {
    for (const DirectRound& round : rounds) close(round);
  }

  bool empty() const { return pending_.empty(); }
  bool holds(const Operation& operation) const;
  // Carries out the calls for which all have met. Returns whether there were any, or some were reported.
  bool meet(TimePoint now) { return !pending_.empty() && look(false, now); }
  // Nobody here looks any longer: what is not met by now is reported.
  void leave() {
    if (!pending_.empty()) look(true, std::chrono::steady_clock::now());
  }

 private:
  std::optional<DirectRound> round_for(const SharedArena& arena, PersistentOp& op, Ticket ticket) const;
  std::optional<DirectRound> round_for(const SharedArena& arena, PersistentOp& op, const Call& call) const;
  void avoid(PersistentOp& op, const Request& request);
  bool close_for_all(Arrivals place, std::uint64_t round, int n_own);
  bool look(bool closes, TimePoint now);
  void report_missed(PersistentOp& op, TimePoint now);

  int root_of(const Terms& terms) const;
  RoundCall call_of(const Submission& entry, std::span<const DirectTensor> tensors) const;
  bool enter(SharedArena& arena, const DirectRound& round, const RoundCall& call, Stages* stages);
  void gather(const SharedArena& arena, const DirectRound& round, const RoundCall& call);
  void note_done(const SharedArena& arena, const DirectRound& round);
  Status carry_out(const SharedArena& arena, const DirectRound& pending);

  std::shared_ptr<Operation> wait_at(const DirectRound& round, const Call& call, const Stages* stages);
  void record(const Call& call, Stages& stages);

  const LaneParts lane_;
  std::uint64_t& n_unnamed_;  // this rank's calls without a name
  std::vector<DirectRound> pending_;
  std::unordered_map<std::uint32_t, DirectRound> to_close_;  // by place; as soon as there is an arena
  RoundMemory memory_;
  std::vector<const std::byte*> contributed_;  // what a call is carried out from
};

}  // namespace ciranda
