// SentInputs: the inputs of direct rounds by messages: small allreduces that ranks without shared memory execute
// without the log. A rank sends its input to all other members at once, and a member that has all inputs combines them
// in rank order. That takes one message delay; the log takes two: to the coordinator, and back.
//
// The log opens a name to such rounds, and all members number them alike. A rank arrives at each number once, or never:
// if its next call is another, the name is closed on that rank until the log opens it with a higher number. So either
// all members arrive at a round, and all will have all inputs; or one does not, none will, and the log decides.
//
// Called by RoundsByMessages, and Coordinator for limits; pure.
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

// Whether the call contributes one tensor, of at most most_bytes together with those of the other members.
bool may_go_by_messages(const Signature& signature, int n_members, std::size_t most_bytes);

class SentInputs {
 public:
  struct Done {
    std::uint32_t cache_id;
    Ticket ticket;
    std::vector<Payload> inputs;  // of all members, in their order
    int last;                     // the member whose input came last
  };

  SentInputs(int member, int n_members);

  // This rank has sent the message. REQUIRES: no other call of the cache id is pending here.
  Status begin(InputMessage message, Ticket ticket);
  // Another member has sent the message. An error means that it violates the protocol.
  Status on_input(int member, InputMessage message);
  // The member sends no more inputs.
  void on_end(int member) { has_ended_[static_cast<std::size_t>(member)] = true; }
  // Drops the call if it is pending here: the log has answered it, or no answer will come.
  void forget(Ticket ticket);

  // Removes and returns the pending calls that have all inputs.
  std::vector<Done> take_done();
  // Pending calls that lack the input of a member that sends no more: only the log may still answer them.
  std::vector<Ticket> lost() const;
  bool empty() const { return pending_.empty(); }
  void clear() { pending_.clear(); }

 private:
  struct RoundInputs {
    std::uint64_t number = 0;
    std::size_t n_here = 0;
    std::size_t n_bytes = 0;      // of each input
    int last = 0;                 // the member whose input came last
    std::vector<Payload> inputs;  // by member; empty once taken
    bool has(std::size_t member) const { return inputs.empty() || !inputs[member].bytes().empty(); }
  };
  struct Pending {
    std::uint32_t cache_id;
    std::uint64_t number;
    Ticket ticket;
  };

  const RoundInputs& round_of(const Pending& pending) const { return rounds_.at(pending.cache_id)[pending.number % 2]; }

  int member_;
  std::size_t n_members_;
  std::vector<bool> has_ended_;
  // By cache id. Another rank can be one round ahead of this one, but not two: it needs this rank's input to the first.
  std::unordered_map<std::uint32_t, std::array<RoundInputs, 2>> rounds_;
  std::vector<Pending> pending_;
};

}  // namespace ciranda
