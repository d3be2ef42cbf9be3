// Participant: one rank's side of the agreement: what it announces for a request, and what the log's entries mean for
// it.
//
// Pure, like the coordinator. Requests are known here by a ticket that the caller chooses; it gets each ticket back
// exactly once, to carry out or to fail.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/status.hpp"
#include "negotiate/messages.hpp"
#include "request/request.hpp"

namespace ciranda {

class Participant {
 public:
  using Ticket = std::uint64_t;
  static constexpr Ticket kNoTicket = ~Ticket{0};
  using FirstDims = std::vector<std::vector<std::int64_t>>;  // [tensor][rank]

  // What others do while this rank has joined: it helps, without data of its own.
  struct Absence {
    std::string name;
    Signature signature;
    std::vector<std::int32_t> absent;  // the ranks that take no part
  };
  struct Ready {
    Ticket ticket = kNoTicket;                    // kNoTicket: this rank has joined and is one of the absent
    std::shared_ptr<const FirstDims> first_dims;  // null where first dimensions cannot differ
    std::shared_ptr<const Absence> absence;       // null when all ranks take part
  };
  struct Execute {
    std::vector<Ready> requests;  // in order; they travel together
    Check check = Check::kNone;
  };
  struct Fail {
    std::vector<Ticket> tickets;
    Status status;
  };
  struct Joined {
    Ticket ticket;
    int last;  // the rank that joined last
  };
  struct End {};  // the lane's last action
  using Action = std::variant<Execute, Fail, Joined, End>;

  explicit Participant(int rank) : rank_(rank) {}

  // What to tell the coordinator. REQUIRES: a valid request.
  Message submit(const Request& request, Ticket ticket);

  // The same for a request that was refused here because its name is in use: the others must hear of it.
  Message submit_duplicate(const std::string& name, Ticket ticket);

  // REQUIRES: no join() of this rank is pending.
  Message join(Ticket ticket);

  // An Internal error means that the log does not fit what this rank announced: the circle is broken.
  Result<Action> apply(const LogEntry& entry);

  bool has_pending() const { return n_pending_ > 0; }

 private:
  struct Name {
    std::uint32_t slot = kNoSlot;
    bool is_known = false;  // not after a round that this rank missed
    Signature known;        // with which the slot was last agreed
    std::shared_ptr<const FirstDims> first_dims;
    struct Pending {
      Ticket ticket;
      std::unique_ptr<Signature> in_full;  // what was announced, unless it was the known one
    };
    std::vector<Pending> pending;  // announced and not yet answered, oldest first
  };

  Result<Action> execute(const ExecuteEntry& entry);
  Result<Ready> execute(const ExecuteItem& item);
  Ready stand_in(const ExecuteItem& item);
  Result<Action> end_join(const JoinedEntry& entry);
  Result<Action> fail(const FailEntry& entry);
  Name* find(const ExecuteItem& item);
  void learn(const ExecuteItem& item, Name& name);
  void take_slot(std::uint32_t slot, Name& name);
  void forget_if_unused(const std::string& text);

  int rank_;
  std::unordered_map<std::string, std::unique_ptr<Name>> names_;
  std::vector<Name*> slots_;
  std::size_t n_pending_ = 0;
  Ticket join_ = kNoTicket;
};

}  // namespace ciranda
