// NamedParticipant: a participant with operations of its own, which finds that of a call by the name of its request.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "agree/participant.hpp"

namespace ciranda::testing {

// Is there before the participant that knows it.
struct OwnOps {
  std::unique_ptr<PersistentOps> ops = std::make_unique<PersistentOps>();
};

class NamedParticipant : private OwnOps, public Participant {
 public:
  explicit NamedParticipant(int rank, RoundRooms rooms = {0, 0}) : Participant(rank, 0, *OwnOps::ops, rooms) {}

  PersistentOp& op(const std::string& name) const { return OwnOps::ops->find_or_make(0, name); }

  Message submit(const Request& request, Ticket ticket) {
    return Participant::submit(op(request.name), request, ticket);
  }
  Message submit_duplicate(const std::string& name, Ticket ticket) {
    return Participant::submit_duplicate(op(name), ticket);
  }
  std::optional<DirectRound> arrive(Direct by, const Request& request, Ticket ticket) {
    return rounds().arrive(by, op(request.name), request, ticket);
  }
  bool keep_duplicate(const std::string& name, Ticket ticket) { return rounds().keep_duplicate(op(name), ticket); }
  std::optional<DirectRound> avoid(const std::string& name) { return DirectRounds::avoid(op(name)); }
  std::optional<DirectRound> round_for(const Call& call) const {
    return DirectRounds::round_for(op(std::string(call.name)), call);
  }
};

}  // namespace ciranda::testing
