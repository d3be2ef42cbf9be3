// SentInputs: the inputs of direct rounds by messages, small allreduces that ranks which share no memory carry out
// without the log. A rank sends its input to all other members at once; whoever has the inputs of all combines them,
// in rank order. That is one hop, where the log takes two: to the coordinator, and back.
//
// The log opens a name to such rounds, and they are numbered, alike on all members. To each number a rank comes once,
// or never: if its next call is another, the name is closed there until the log opens it with a higher number. So
// either all members come to a round, and all will have all inputs; or one does not, none will have them all, and the
// log decides.
//
// Which calls may go so is for DirectRounds to say. Pure; one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "agree/messages.hpp"
#include "agree/persistent_op.hpp"
#include "base/status.hpp"
#include "call/request.hpp"

namespace ciranda {

// What a call contributes is one tensor, of at most so many bytes together with those of the other members.
bool may_go_by_messages(const Signature& signature, int n_members, std::size_t most_bytes);

class SentInputs {
 public:
  struct Done {
    std::uint32_t cache_id;
    Ticket ticket;
    std::vector<Payload> inputs;  // of all members, in their order
  };

  SentInputs(int member, int n_members);

  // This rank has sent this. REQUIRES: no other call of the cache id is pending here.
  Status begin(InputMessage message, Ticket ticket);
  // Another has. Not ok: it breaks the rules.
  Status hear(int member, InputMessage message);
  // The member sends no more.
  void hear_end(int member) { has_ended_[static_cast<std::size_t>(member)] = true; }
  // The log has answered the call, or nobody will, if it was pending here.
  void forget(Ticket ticket);

  // Those of which all inputs are there; they are pending no longer.
  std::vector<Done> take_done();
  // Those that lack the input of a member that sends no more: the log answers them, or nobody will.
  std::vector<Ticket> lost() const;
  bool empty() const { return pending_.empty(); }
  void clear() { pending_.clear(); }

 private:
  struct Round {
    std::uint64_t number = 0;
    std::size_t n_here = 0;
    std::size_t n_bytes = 0;      // of each
    std::vector<Payload> inputs;  // by member; empty once they are taken
    bool has(std::size_t member) const { return inputs.empty() || !inputs[member].bytes().empty(); }
  };
  struct Pending {
    std::uint32_t cache_id;
    std::uint64_t number;
    Ticket ticket;
  };

  const Round& round_of(const Pending& pending) const { return rounds_.at(pending.cache_id)[pending.number % 2]; }

  int member_;
  std::size_t n_members_;
  std::vector<bool> has_ended_;
  // By cache id. Another can be one round ahead of this rank, not two: the one before the second needs this rank too.
  std::unordered_map<std::uint32_t, std::array<Round, 2>> rounds_;
  std::vector<Pending> pending_;
};

}  // namespace ciranda
