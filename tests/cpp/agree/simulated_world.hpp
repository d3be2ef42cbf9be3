// SimulatedWorld: n participants and one coordinator joined by queues, moved one event at a time by a test.
//
// Each rank follows a script of calls and waits. Nothing happens by itself: the test asks which events are possible and
// performs one, so that it can try every order, or any. What became of every call is recorded; violation() compares it
// with what must be: the k-th use of a name on one rank, since all ranks last joined, goes with the k-th use on every
// other, and shares its fate; ranks that have joined are not missed. A rank that leaves takes part in what it has
// executed, and in nothing else. Where the coordinator lets ranks meet, they do for every call that is not deferrable,
// and may leave a round at any moment. Where they come by messages, they do too, and then hear of it when one leaves.
// A rank that waits may say that it stands, at any moment; if the coordinator finds a standstill, it must be one.
// One message may be lost on its way, which no transport does: then time must bring an end to all that waits.
// Everything is deterministic: the same scripts and events give the same world. One thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "agree/coordinator.hpp"
#include "agree/named_participant.hpp"
#include "agree/relay.hpp"
#include "agree/sent_inputs.hpp"
#include "base/relay_tree.hpp"
#include "transport/arrivals.hpp"

namespace ciranda::testing {

struct ScriptedCall {
  std::string name;
  Signature signature;
  bool is_deferrable = false;
  bool is_cacheable = true;
  bool is_awaited = true;  // from the beginning: it may come to a direct round
};
struct Wait {};   // for all of the rank's own calls so far
struct Join {};   // and wait for it
struct Leave {};  // the rank shuts down, without waiting for anything; a script's last step
using Step = std::variant<ScriptedCall, Wait, Join, Leave>;
using Script = std::vector<Step>;

struct WorldOptions {
  CoordinatorOptions coordinator;        // its size is set from the scripts
  bool takes_eagerly = false;            // the coordinator writes its log after every report (else when told)
  bool uses_codec = false;               // messages travel as bytes
  std::vector<std::string> hosts;        // by rank: reports and the log go through relays; empty: there are none
  int fan_out = 0;                       // of the relays
  bool is_taken_down = false;            // the lane is, sooner or later
  std::size_t n_stalls = 0;              // so often the coordinator may find that what is open has waited for too long
  bool tells_standing = false;           // ranks that wait say so, sooner or later
  std::optional<std::size_t> lost = {};  // of the messages, in the order in which they arrive
};

struct Event {
  enum class Kind : std::uint8_t {
    kStep,
    kDeliver,
    kTake,
    kTakeBusy,
    kApply,
    kRelease,
    kPassOn,
    kPassLog,
    kLetGo,
    kEnd,
    kLook,
    kLeaveRounds,
    kHear,
    kStall,
    kStand
  };
  Kind kind;
  int rank = -1;
  int from = -1;  // whom it hears
  bool operator==(const Event&) const = default;
};
std::string to_string(const Event& event);

// What an event reads or changes; two events whose footprints are apart may change places.
struct Footprint {
  std::uint64_t deciders = 0;  // a bit each: the coordinator, the relays of the first ranks, all rounds
  int rank = -1;
  std::uint64_t names = 0;  // of the rank, a bit each (names may share one)
  bool is_apart_from(const Footprint& other) const;
};

class SimulatedWorld {
 public:
  SimulatedWorld(const std::vector<Script>& scripts, const WorldOptions& options);

  // Rank by rank takes its first n steps, and all that follows from them happens, in one fixed order.
  void begin_with(std::size_t n_steps);

  // Empty when nothing can happen any more. A rank that holds requests lets go of them by itself at the latest when
  // nothing else can happen; holds_any() tells whether it may before.
  std::vector<Event> possible_events() const;
  // Whether one of those still is, after others have been performed.
  bool is_possible(const Event& event) const;
  Footprint footprint(const Event& event) const;
  void perform(const Event& event);

  // REQUIRES: nothing can happen any more. Time passes, and all that follows from it happens, until it changes nothing.
  void let_time_pass();
  // A call, or a join, that has found no end; empty if there is none. When the world breaks, all end.
  std::string unended() const;

  // What is wrong now, of the things that may never be, or why the world has broken; empty if nothing is.
  const std::string& broken() const { return broken_.empty() ? wrong_ : broken_; }
  // The first of these alone: what no lost message may lead to.
  const std::string& wrong() const { return wrong_; }
  std::size_t n_messages() const { return n_messages_; }
  // REQUIRES: nothing can happen any more. What is wrong with what became of the calls; empty if nothing is.
  std::string violation() const;

  // How often the coordinator has found that all wait for each other.
  std::size_t n_standstills() const { return n_standstills_; }
  bool holds_any(int rank) const { return ranks_[static_cast<std::size_t>(rank)].participant.held().any(); }
  bool relay_holds_any(int rank) const {
    const auto& relay = ranks_[static_cast<std::size_t>(rank)].relay;
    return relay && relay->holds_any();
  }
  std::size_t n_groups_of_all() const { return n_groups_of_all_; }  // passed on by the first relay
  std::size_t n_group_entries() const { return n_group_entries_; }
  std::size_t n_log_entries() const { return log_.size(); }
  const std::vector<LogEntry>& log() const { return log_; }
  std::size_t n_executed() const { return ranks_.front().executed.size() + n_direct(); }
  std::size_t n_direct() const { return ranks_.front().n_direct; }

 private:
  struct Outcome {
    bool is_executed = false;
    std::size_t entry = 0;  // of the log
    Status status;
    FirstDims first_dims;
  };
  struct Use {
    std::string name;
    std::size_t nth = 0;    // use of the name on this rank, in its epoch
    std::size_t epoch = 0;  // how often all ranks had joined
    Signature signature;
    bool is_duplicate = false;
    std::optional<Outcome> outcome;
  };
  struct Rank {
    // `n_by_messages`: the ranks that it hears; none where no inputs are sent.
    Rank(int rank, std::size_t n_by_messages)
        : at(static_cast<std::size_t>(rank)),
          participant(rank, {kRooms, 1 << 20}),
          by_messages(rank, static_cast<int>(n_by_messages)),
          incoming(n_by_messages) {}
    std::size_t at;
    NamedParticipant participant;
    std::size_t next_step = 0;
    bool is_waiting = false;
    bool has_deferrable = false;    // has made a call that is
    std::deque<Message> reported;   // on the way to the coordinator
    std::size_t n_applied = 0;      // entries of the log
    StandingMessage said;           // since its last call
    std::optional<Relay> relay;     // if it is one
    std::size_t n_passed_down = 0;  // entries of the log, to its host and the relays below
    std::set<std::size_t> lost;     // entries of the log that have not come to it as a relay
    std::vector<Use> uses;          // by ticket
    std::map<std::string, std::size_t> n_uses;
    std::size_t n_joins = 0;            // begun
    std::vector<int> joined_last;       // by join done
    std::vector<std::string> executed;  // "name#nth", or "name" where it helped others
    std::vector<DirectRound> rounds;    // that it has come to
    std::size_t n_direct = 0;
    SentInputs by_messages;
    std::vector<std::deque<Message>> incoming;  // by sender; what the first rank is sent comes with reports
    std::optional<std::size_t> log_end;         // of the log, as far as those took part who have left
    bool has_left = false;
    bool has_ended = false;  // it knows that the lane has
  };

  static constexpr std::size_t kRooms = 64;
  static constexpr std::size_t kMetAt = std::size_t{1} << 40;  // instead of an entry of the log

  bool goes_by_messages() const { return options_.coordinator.direct == Direct::kByMessages; }
  bool has_step(const Rank& rank) const;
  void step(Rank& rank);
  bool has_pending(const Rank& rank, const std::string& name) const;
  Arrivals word(const DirectRound& round) const;
  bool has_news_of_rounds(const Rank& rank) const;
  bool arrive_in_memory(Rank& rank, const Request& request, bool is_deferrable);
  bool agree(const DirectRound& round);
  void report_missed(Rank& rank, PersistentOp& op);
  void look_at_rounds(Rank& rank, bool closes);
  bool send_input(Rank& rank, const Request& request);
  bool is_message(const Event& event) const;
  void lose(const Event& event);
  bool has_come_down(const Rank& rank, std::size_t entry) const;
  void tell_others(Rank& rank, const Message& message);
  void hear(Rank& rank, int from, const Message& message);
  void carry_out_by_messages(Rank& rank);
  void report_late(Rank& rank);
  void give_up_lost_rounds(Rank& rank);
  void stall();
  std::optional<StandingMessage> standing(const Rank& rank) const;
  void stand(Rank& rank);
  void judge_standstill(const LogMessage& written);
  bool is_at_standstill() const;
  void report(Rank& rank, Message message);
  void send(Rank& rank, Message message);
  void release(Rank& rank);
  void deliver(int rank);
  void be_heard(int rank, Message message);
  void pass_on(int relay);
  void pass_log(Rank& relay);
  std::size_t n_known_to(const Rank& rank) const;
  std::size_t n_known_above(const Rank& relay) const;
  std::uint64_t decider_above(int relay) const;
  void take(bool wire_is_idle);
  void append(LogEntry entry);
  void apply(Rank& rank);
  void settle(Rank& rank, Ticket ticket, Outcome outcome);
  void end();
  void end(Rank& rank, std::size_t entry);
  Message carry(const Message& message);
  void must(const Status& status);
  // By epoch, name and how often it was used before: what each rank called, or null.
  using Rounds = std::map<std::tuple<std::size_t, std::string, std::size_t>, std::vector<const Use*>>;

  std::string judge_rounds() const;
  bool has_left(int rank) const { return ranks_[static_cast<std::size_t>(rank)].has_left; }
  std::string judge_joins() const;
  std::string judge_leaving(const Rounds& rounds) const;
  bool has_joined(std::size_t at, std::size_t epoch) const { return ranks_[at].n_joins > epoch; }
  // `is_repeated`: a rank's next use of the name is a duplicate, which fails the one it repeats if that is still open.
  std::string judge(std::size_t epoch, const std::string& name, std::size_t nth, const std::vector<const Use*>& uses,
                    bool is_repeated) const;
  std::string judge_complete(const std::string& which, const std::vector<const Use*>& uses, bool must_fail,
                             bool may_fail) const;

  static bool earlier_are_answered(const Rank& rank, const Use& use);

  const std::vector<Script>* scripts_;
  WorldOptions options_;
  Coordinator coordinator_;
  std::optional<RelayTree> tree_;
  std::deque<Rank> ranks_;
  mutable std::array<std::atomic<std::uint64_t>, kRooms> words_{};
  std::map<std::uint64_t, std::map<std::size_t, std::uint32_t>> tags_;  // of calls without a name; by round and rank
  std::vector<LogEntry> log_;
  std::vector<std::uint64_t> names_in_entry_;  // of the log, as in Footprint
  std::map<std::uint32_t, std::uint64_t> name_of_id_;
  std::vector<std::uint64_t> names_in_group_;  // of the plan
  std::size_t n_stalls_ = 0;
  std::size_t n_standstills_ = 0;
  std::set<std::string> told_;  // of these
  std::size_t n_group_entries_ = 0;
  std::size_t n_groups_of_all_ = 0;
  bool has_news_ = false;  // reports since the log was last written
  bool has_ended_ = false;
  std::size_t n_messages_ = 0;
  std::string wrong_;
  std::string broken_;
};

}  // namespace ciranda::testing
