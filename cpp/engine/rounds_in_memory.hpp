// RoundsInMemory: this rank's calls that are carried out without the coordinator (negotiate/participant.hpp says when).
// A call leaves what it contributes in the memory that the lane's members share, and when all have come, each combines
// what lies there: two cache lines that change hands, instead of a report, an entry of the log, and a collective.
//
// A round is for ranks that wait and look. None sleeps over one: it closes the round first, and reports the call
// as any other, so that who comes later wakes it in the ordinary way. A rank that comes early (request.hpp) looks again
// when it waits; it may sleep before, and is woken by who closes the round.
//
// One thread (the holder of the progress lock).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "engine/in_flight.hpp"
#include "engine/round_data.hpp"
#include "engine/round_memory.hpp"
#include "negotiate/participant.hpp"
#include "transport/arena.hpp"
#include "transport/meeting.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

class RoundsInMemory {
 public:
  // All outlive this. `n_met` counts what is carried out here.
  RoundsInMemory(Mesh& mesh, InFlight& in_flight, std::atomic<std::uint64_t>& n_met)
      : mesh_(mesh), in_flight_(in_flight), n_met_(n_met) {}

  // `arena`: the lane's; it outlives this.

  // False: the round is closed.
  bool come(SharedArena& arena, const Participant::DirectRound& round, Participant::Ticket ticket);
  // Where this rank does not come. `arena`: null where there is none, or none yet. REQUIRES: it has not come.
  void close(SharedArena* arena, const Participant::DirectRound& round);

  // A call that is nowhere in flight: comes, and looks so many times whether all others have too. `output`: memory for
  // the result, not null.
  enum class Outcome : std::uint8_t {
    kClosed,  // this rank has not come
    kMet,     // the call is carried out
    kOpen,    // others are missing: wait_for() them
    kApart,   // all have come, without a name, with different calls
  };
  Outcome try_at_once(SharedArena& arena, const Participant::DirectRound& round, const Call& call, std::byte* output,
                      Stages* stages, int n_looks);
  // From here on it is in flight. REQUIRES: this rank has come, by try_at_once().
  void wait_for(const SharedArena& arena, const Participant::DirectRound& round, Participant::Ticket ticket) {
    pending_.push_back({round, ticket, &arena});
  }

  // Whether such tensors had better not come: they lie in shared memory, but for little, and need not be contributed.
  static bool is_better_in_place(const SharedArena& arena, Collective collective, const std::byte* output,
                                 std::size_t n_bytes) {
    return info(collective).reduces_for_all && n_bytes > kMostRoundBytes && lies_in_region(arena, output, n_bytes);
  }
  static bool is_better_in_place(const SharedArena& arena, const Request& request);

  bool empty() const { return pending_.empty(); }
  bool holds(const Operation& operation) const;

  // Carries out what is met, whose outcome is then known; says whose rounds were met and whose are closed.
  struct News {
    std::vector<PersistentOp*> met;
    std::vector<PersistentOp*> missed;
  };
  // `closes`: then every round is one or the other.
  News look(bool closes);

 private:
  struct Pending {
    Participant::DirectRound round;
    Participant::Ticket ticket;
    const SharedArena* arena;  // not null
  };

  static bool lies_in_region(const SharedArena& arena, const std::byte* output, std::size_t n_bytes) {
    return arena.regions().find(output, n_bytes).has_value();
  }
  void close_what_is_due(SharedArena& arena);
  bool close_for_all(Meeting place, std::uint64_t round, int n_own);
  RoundCall call_of(const InFlight::Entry& entry, std::span<const DirectTensor> tensors) const;
  bool enter(SharedArena& arena, const Participant::DirectRound& round, const RoundCall& call, Stages* stages);
  void gather(const SharedArena& arena, const Participant::DirectRound& round, const RoundCall& call);
  void note_done(const SharedArena& arena, const Participant::DirectRound& round);
  Status carry_out(const Pending& pending);

  Mesh& mesh_;
  InFlight& in_flight_;
  std::atomic<std::uint64_t>& n_met_;
  std::vector<Pending> pending_;
  std::unordered_map<std::uint32_t, Participant::DirectRound> to_close_;  // by place; as soon as there is an arena
  RoundMemory memory_;
  std::vector<const std::byte*> contributed_;  // what a call is carried out from
};

}  // namespace ciranda
