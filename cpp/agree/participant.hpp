// Participant: one rank's side of the agreement: what it reports for a request, and what the log's entries mean for
// it. Its parts: the calls that are pending, the names that it knows, the groups of these that are held, and the direct
// rounds of names, and of calls without one. Others talk to the part that they need.
//
// Pure, like the coordinator. Requests are known here by a ticket that the caller chooses; it gets each ticket back
// exactly once, to carry out or to fail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "agree/direct_rounds.hpp"
#include "agree/held_groups.hpp"
#include "agree/known_names.hpp"
#include "agree/messages.hpp"
#include "agree/pending_calls.hpp"
#include "agree/persistent_op.hpp"
#include "agree/persistent_ops.hpp"
#include "agree/round_places.hpp"
#include "agree/unnamed_rounds.hpp"
#include "base/status.hpp"
#include "call/request.hpp"

namespace ciranda {

class Participant {
 public:
  struct Ready {
    Ticket ticket = kNoTicket;                    // kNoTicket: this rank has joined and is one of the absent
    std::shared_ptr<const FirstDims> first_dims;  // null where first dimensions cannot differ
    // What others do while some have joined, who help without data of their own; null when all ranks take part.
    std::shared_ptr<const ExecuteItem> absence;
  };
  struct Execute {
    std::vector<Ready> requests;  // in order; they travel together
    Check check = Check::kNone;
    std::vector<std::byte> inputs = {};      // of all ranks, one after the other, if they came with the log
    std::vector<DirectRound> to_close = {};  // first: this rank has reported the next call already
  };
  struct Fail {
    std::vector<Ticket> tickets;
    Status status;
    std::vector<DirectRound> to_close;
  };
  struct Joined {
    Ticket ticket;
    int last;  // the rank that joined last
  };
  struct End {   // the lane's last action
    int leaver;  // as of EndEntry
  };
  // Groups are planned anew: what was held until now is to be reported at once, and then that the plan is known.
  struct Planned {
    ReadyMessage released;
    GroupsMessage known;
  };
  // This rank will not come to the round by messages, as the answer says; without one, it has come.
  struct Cancelled {
    std::optional<NoInputMessage> answer;
  };
  // Names that others may use the cache ids of; rounds to which others might come are to be closed.
  struct Forgotten {
    std::vector<DirectRound> to_close;
    ForgottenMessage answer;
  };
  using Action = std::variant<Execute, Fail, Joined, End, Planned, Cancelled, Forgotten>;

  // `ops` outlives this, and has the lane's operations.
  Participant(int rank, LaneId lane, PersistentOps& ops, RoundPlaces places = {0, 0})
      : rank_(rank),
        lane_(lane),
        ops_(ops),
        calls_(lane, ops),
        names_(lane, ops),
        held_(names_),
        rounds_(places, calls_),
        unnamed_(ops.find_or_make(lane, ""), rounds_, calls_) {}
  Participant(const Participant&) = delete;  // its parts know each other

  PendingCalls& calls() { return calls_; }
  const PendingCalls& calls() const { return calls_; }
  const KnownNames& names() const { return names_; }
  HeldGroups& held() { return held_; }
  const HeldGroups& held() const { return held_; }
  DirectRounds& rounds() { return rounds_; }
  UnnamedRounds& unnamed() { return unnamed_; }

  // What to tell the coordinator; an empty ReadyMessage: nothing, the request is held. What is neither a ReadyMessage
  // nor a GroupsMessage, a join too, must not be told before what is held. REQUIRES: a valid request.
  Message submit(PersistentOp& op, const Request& request, Ticket ticket);

  // The same for a request that was refused here because its name is in use: the others must hear of it.
  Message submit_duplicate(PersistentOp& op, Ticket ticket);

  // Of a failure, or a duplicate call of this rank: the coordinator, which does not hear of rounds in memory, is to see
  // which ranks have gone on since. So the next call of each name comes by the log. Those that this rank is to close.
  std::vector<DirectRound> close_rounds_in_memory();

  // An Internal error means that the log does not fit what this rank reported: the world is broken.
  Result<Action> apply(const LogEntry& entry);

 private:
  Result<Action> execute(const ExecuteEntry& entry);
  Result<Action> execute(const ExecuteGroupsEntry& entry);
  Result<Ready> execute(const ExecuteItem& item, std::vector<DirectRound>& to_close);
  Ready stand_in(const ExecuteItem& item);
  Ready take(PersistentOp& op);
  void open_rounds(const ExecuteItem& item, PersistentOp& op, std::vector<DirectRound>& to_close);
  Result<Action> fail(const FailEntry& entry);
  Result<Action> end_join(const JoinedEntry& entry);
  Result<Action> plan(const PlanEntry& entry);
  Result<Action> cancel(const CancelEntry& entry);
  Result<Action> forget(const ForgetEntry& entry);
  Status misfit(const std::string& what_the_log_does, const std::string& what_this_rank_lacks) const;

  int rank_;
  LaneId lane_;
  PersistentOps& ops_;
  PendingCalls calls_;
  KnownNames names_;
  HeldGroups held_;
  DirectRounds rounds_;
  UnnamedRounds unnamed_;
};

}  // namespace ciranda
