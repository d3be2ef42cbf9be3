// Participant: one rank's side of the agreement: what it reports for a request, and what the log's entries mean for
// it.
//
// Where the log has planned groups of names, a request of such a group is *held*: it is reported when all of the group
// can be, by one number. Whoever uses this class sees to it that what is held is released in time.
//
// Where the log has opened a name to *direct rounds*, a request of that name may be carried out without the log, if all
// ranks come to the round: come(). In memory (round_places.hpp) it is not reported, and a rank that reports it
// instead closes the round: avoid(). By messages (rounds_by_messages.hpp) it is reported by what all ranks are sent,
// and the log may answer it. Either way the name's calls stay paired, and all ranks count the same rounds.
//
// Pure, like the coordinator. Requests are known here by a ticket that the caller chooses; it gets each ticket back
// exactly once, to carry out or to fail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "agree/messages.hpp"
#include "agree/persistent_op.hpp"
#include "agree/persistent_ops.hpp"
#include "agree/round_places.hpp"
#include "agree/unnamed.hpp"
#include "base/status.hpp"
#include "call/call.hpp"
#include "call/request.hpp"

namespace ciranda {

class Participant {
 public:
  using Ticket = std::uint64_t;
  static constexpr Ticket kNoTicket = ~Ticket{0};

  // A round of a name that ranks carry out without the log.
  struct DirectRound {
    PersistentOp* op = nullptr;
    RoundPlace place;  // in memory
    std::uint64_t number = 0;
    const FirstDims* first_dims = nullptr;  // null where first dimensions cannot differ; valid while the name is open
    std::uint32_t tag = 0;                  // of a call without a name: which call it is, which all must say alike
    bool is_unnamed() const { return op->is_unnamed(); }
  };

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
    std::vector<std::byte> inputs = {};      // of all ranks, one after the other, if they came with the log
    std::vector<DirectRound> to_close = {};  // first: this rank has reported the next call already
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
      : rank_(rank), lane_(lane), ops_(&ops), places_(places), unnamed_(&ops.find_or_make(lane, "")) {}

  // What to tell the coordinator; an empty ReadyMessage: nothing, the request is held. What is neither a ReadyMessage
  // nor a GroupsMessage must not be told before what is held, here and below. REQUIRES: a valid request.
  Message submit(PersistentOp& op, const Request& request, Ticket ticket);

  // The same for a request that was refused here because its name is in use: the others must hear of it.
  Message submit_duplicate(PersistentOp& op, Ticket ticket);

  // Instead of submit(), if the name is open to such rounds and the request may come to one: it is then pending until
  // done(), or missed() in memory, or until the log answers what came by messages. None: submit it.
  std::optional<DirectRound> come(Direct by, PersistentOp& op, const Request& request, Ticket ticket);
  // All have come; this rank may carry it out. REQUIRES: this rank has come to a round of it.
  Ready done(PersistentOp& op);
  // The round in memory is closed; what to tell the coordinator instead. REQUIRES: as above.
  ReadyMessage missed(PersistentOp& op);
  // Of a call for which no ticket is made: the round in memory that it may come to. It leaves no trace here: once all
  // have come done_at_once() says so, in place of come() and done(); and if that takes long, come() makes it pending.
  std::optional<DirectRound> round_for(PersistentOp& op, const Call& call) const;
  // REQUIRES: nothing was done with the name since round_for().
  static void done_at_once(PersistentOp& op) { ++op.next_round_; }
  // Before submit(), where come() was not tried: the round in memory that others might come to, which is to be closed
  // first.
  std::optional<DirectRound> avoid(PersistentOp& op);

  // The same for a call without a name, the `nth` of this rank; in memory.
  PersistentOp& unnamed() { return *unnamed_; }
  std::optional<DirectRound> come_unnamed(const Request& request, std::uint64_t nth, Ticket ticket);
  std::optional<DirectRound> round_for_unnamed(const Call& call, std::uint64_t nth) const;
  // Instead of missed(): its ticket, of a request to submit().
  Ticket missed_unnamed();
  bool has_come_unnamed() const { return unnamed_->state() == State::kInMemory; }
  // Others came with another call: none of them is carried out.
  void give_up_unnamed() { close(*unnamed_); }

  // Instead of submit(), come() or submit_duplicate(), for a name of which this rank has come to a round by messages:
  // false if there is none. Such a duplicate is told when that is over, by take_late(): told before, it would fail what
  // others may have carried out.
  bool come_late(PersistentOp& op, Ticket ticket);
  // After any of the others has returned a request: what to tell the coordinator now.
  std::vector<DuplicateMessage> take_late() { return std::exchange(late_, {}); }

  // REQUIRES: the log has given it to a name.
  PersistentOp& at(std::uint32_t cache_id) { return *by_cache_id_[cache_id]; }

  // REQUIRES: no join() of this rank is pending.
  Message join(Ticket ticket);

  // What is held, to be reported now.
  ReadyMessage release();
  bool holds_any() const { return n_held_ > 0; }

  // An Internal error means that the log does not fit what this rank reported: the world is broken.
  Result<Action> apply(const LogEntry& entry);

  bool has_pending() const { return n_pending_ > 0; }
  bool has_joined() const { return join_ != kNoTicket; }

  // What was told to somebody, or has come back, may be lost to an error of ours, or of a machine. Then no other rank
  // sees that this one waits. So this is asked at intervals that are longer than an answer takes: a call that is
  // pending at the kMostSweeps-th will never be answered; its name. Those that may be held back are counted if it is
  // said so.
  static constexpr int kMostSweeps = 3;
  std::optional<std::string> sweep(bool counts_deferrable);
  // A join has to wait for as long as the others work. But it can be said again, and must be at such intervals.
  std::optional<JoinMessage> join_again() const {
    return join_ == kNoTicket ? std::nullopt : std::optional(JoinMessage{n_joins_});
  }

 private:
  using State = PersistentOp::State;

  struct Group {
    std::vector<std::uint32_t> cache_ids;
    std::size_t n_held = 0;
  };

  Message hold(PersistentOp& op, std::uint32_t group);
  Result<Action> plan(const PlanEntry& entry);
  Result<Action> execute(const ExecuteGroupsEntry& entry);
  static DirectRound next_round(PersistentOp& op);
  std::optional<DirectRound> unnamed_round(std::optional<std::uint32_t> signature, std::size_t n_bytes,
                                           std::uint64_t nth) const;
  void open_unnamed(const Signature& signature, std::vector<DirectRound>& to_close);
  void note_over(const PersistentOp::Pending& pending) { n_unnamed_reported_ -= pending.is_numbered ? 1 : 0; }
  Ready take(PersistentOp& op);
  Result<Action> execute(const ExecuteEntry& entry);
  Result<Ready> execute(const ExecuteItem& item, std::vector<DirectRound>& to_close);
  Ready stand_in(const ExecuteItem& item);
  Result<Action> end_join(const JoinedEntry& entry);
  Result<Action> fail(const FailEntry& entry);
  PersistentOp* find(const ExecuteItem& item) const;
  void learn(const ExecuteItem& item, PersistentOp& op);
  bool take_place(PersistentOp& op);
  void open(PersistentOp& op, Direct direct);
  static void close(PersistentOp& op);
  void end_round(PersistentOp& op);
  Result<Action> cancel(const CancelEntry& entry);
  Result<Action> forget(const ForgetEntry& entry);
  void take_cache_id(std::uint32_t cache_id, PersistentOp& op);
  void lose_cache_id(PersistentOp& op, PersistentOp& to);

  int rank_;
  LaneId lane_;
  PersistentOps* ops_;
  RoundPlaces places_;
  std::uint64_t n_joins_ = 0;
  std::vector<DuplicateMessage> late_;
  std::vector<PersistentOp*> by_cache_id_;
  PersistentOp* unnamed_;  // the calls without a name, as far as they come to direct rounds
  UnnamedSignatures unnamed_signatures_;
  std::size_t n_unnamed_reported_ = 0;
  std::uint32_t plan_ = 0;  // 0: none
  std::vector<Group> groups_;
  std::vector<std::uint32_t> group_of_id_;  // or kNoGroup
  std::size_t n_held_ = 0;
  std::size_t n_pending_ = 0;
  Ticket join_ = kNoTicket;
};

}  // namespace ciranda
