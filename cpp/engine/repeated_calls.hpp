// RepeatedCalls: blocking calls that all ranks have agreed on before, and make again. Ranks meet for them
// (rounds_in_memory.hpp); where they come at the same time that is all there is to do, and no request is made; nor an
// operation, where the caller has given memory for the result. Calls without a name likewise (negotiate/unnamed.hpp).
//
// Of the world's first lane. One thread (the holder of the progress lock).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "complete/operation.hpp"
#include "engine/in_flight.hpp"
#include "engine/lane_log.hpp"
#include "engine/names.hpp"
#include "engine/rounds_in_memory.hpp"
#include "negotiate/participant.hpp"
#include "request/call.hpp"
#include "transport/arena.hpp"

namespace ciranda {

class RepeatedCalls {
 public:
  // A null operation: the call is done, was successful, and its result is in the memory that it gave. Another: that of
  // the call, in flight, or done with an output. None: it is no such call, or cannot be one now, and nothing has been
  // done.
  using Outcome = std::optional<std::shared_ptr<Operation>>;

  // All outlive this.
  RepeatedCalls(Participant& participant, RoundsInMemory& rounds, LaneLog& log, InFlight& in_flight, const Names& names)
      : participant_(participant), in_memory_(rounds), log_(log), in_flight_(in_flight), names_(names) {}

  // Looks so many times whether all have come. `stages`: null unless they are to be recorded.
  Outcome repeat(SharedArena& arena, const Call& call, Stages* stages, int n_looks);

 private:
  std::optional<Participant::DirectRound> round_for(PersistentOp& op, const Call& call) const;
  void note_met(const Participant::DirectRound& round);
  void record(const Call& call, Stages& stages);
  std::shared_ptr<Operation> wait_at(const SharedArena& arena, const Participant::DirectRound& round, const Call& call,
                                     const Stages* stages);

  Participant& participant_;
  RoundsInMemory& in_memory_;
  LaneLog& log_;
  InFlight& in_flight_;
  const Names names_;
};

}  // namespace ciranda
