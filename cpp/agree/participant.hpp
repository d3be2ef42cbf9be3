// Participant: one rank's side of the agreement: how it reports a request, and how an entry of the log affects it. Its
// parts are the pending calls, the known names, the held groups of names, and the direct rounds of calls with and
// without a name. Called by Lane, RoundsInMemory, RoundsByMessages and AnswerWatch, through LaneParts; types used by
// DataPlane, Consistency and functions.hpp; one thread (the holder of the progress lock).
//
// Pure, like the coordinator. The caller chooses a ticket for each request. The participant returns each ticket exactly
// once, to execute or to fail the request.
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
#include "agree/round_rooms.hpp"
#include "agree/unnamed_rounds.hpp"
#include "base/status.hpp"
#include "base/thread_annotations.hpp"
#include "call/request.hpp"

namespace ciranda {

class Participant {
 public:
  struct Ready {
    Ticket ticket = kNoTicket;                    // kNoTicket: this rank has joined and is one of the absent ranks
    std::shared_ptr<const FirstDims> first_dims;  // null if first dimensions cannot differ
    // The item, if some ranks have joined and help without data of their own; null if all ranks take part.
    std::shared_ptr<const ExecuteItem> absence;
    Way way = Way::kHost;  // the same for all requests of an entry
  };
  struct Execute {
    std::vector<Ready> requests;  // in order; executed together
    Check check = Check::kNone;
    std::vector<DirectRound> to_close = {};  // before the requests: this rank has already reported the next call
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
  // New groups are planned. The caller must report the calls held until now first, and then that the plan is known.
  struct Planned {
    ReadyMessage released;
    GroupsMessage known;
  };
  // A round by messages is cancelled. The answer states that this rank will not arrive at it; none if it has arrived.
  struct Cancelled {
    std::optional<NoInputMessage> answer;
  };
  // Cache ids that other names may get. The caller must close the rounds at which other ranks might arrive.
  struct Forgotten {
    std::vector<DirectRound> to_close;
    ForgottenMessage answer;
  };
  using Action = std::variant<Execute, Fail, Joined, EndEntry, Planned, Cancelled, Forgotten, TurnEntry>;

  // `ops` outlives this object, and contains the lane's operations.
  Participant(int rank, LaneId lane, PersistentOps& ops, RoundRooms rooms = {0, 0})
      : rank_(rank),
        lane_(lane),
        ops_(ops),
        calls_(lane, ops),
        names_(lane, ops),
        held_(names_),
        rounds_(rooms, calls_),
        unnamed_(ops.find_or_make(lane, ""), rounds_, calls_) {}
  Participant(const Participant&) = delete;  // its parts refer to each other

  PendingCalls& calls() { return calls_; }
  const PendingCalls& calls() const { return calls_; }
  const KnownNames& names() const { return names_; }
  HeldGroups& held() { return held_; }
  const HeldGroups& held() const { return held_; }
  DirectRounds& rounds() { return rounds_; }
  UnnamedRounds& unnamed() { return unnamed_; }

  // Returns the message for the coordinator. An empty ReadyMessage is not sent: the request is held. The caller must
  // report held calls before it sends any other kind of message than ReadyMessage and GroupsMessage, for example a
  // join. REQUIRES: a valid request.
  Message submit(PersistentOp& op, const Request& request, Ticket ticket);

  // The same for a request that was refused here because its name is in use: the other ranks must get the error, too.
  Message submit_duplicate(PersistentOp& op, Ticket ticket);

  // After a failure, or a duplicate call of this rank, the coordinator must see which ranks have continued since. It
  // does not see rounds in memory, so the next call of each name uses the log. Returns the rounds to close.
  std::vector<DirectRound> close_rounds_in_memory() REQUIRES(progress_lock);

  // An Internal error means that the log contradicts what this rank reported: the world is broken.
  Result<Action> apply(const LogEntry& entry) REQUIRES(progress_lock);

 private:
  Result<Action> execute(const ExecuteEntry& entry) REQUIRES(progress_lock);
  Result<Action> execute(const ExecuteGroupsEntry& entry) REQUIRES(progress_lock);
  Result<Ready> execute(const ExecuteItem& item, std::vector<DirectRound>& to_close) REQUIRES(progress_lock);
  Ready stand_in(const ExecuteItem& item) REQUIRES(progress_lock);
  Ready take(PersistentOp& op);
  void open_rounds(const ExecuteItem& item, PersistentOp& op, std::vector<DirectRound>& to_close);
  Result<Action> fail(const FailEntry& entry) REQUIRES(progress_lock);
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
