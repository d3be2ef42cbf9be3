// Coordinator: decides, for all ranks, what is carried out and in which order.
//
// It is a pure state machine: reports of ranks and the time go in, entries of the response log come out. It knows
// no socket, no thread and no clock. One rank of the world runs it; every rank executes the log (participant.hpp).
//
// A *round* (round.hpp) is one use of a name: it opens with the first report and ends when it is carried out or
// has failed. When something is wrong (ranks disagree, a duplicate, a rank that never comes) the round fails at once
// for the ranks that reported it, and the others *owe* it: their next report of the name is answered with the
// same error, so that every rank hears of it, nobody is left waiting, and the calls of all ranks stay paired.
//
// A rank that has *joined* reports nothing more: rounds are complete without it, until all ranks have joined.
//
// A planned group of names (planned_groups.hpp) may be reported as one. It is then counted as one and carried out as
// one; whatever else happens to a name of it turns the group's reports into those of its names.
//
// "Rank" is a rank's place among the members of the lane that is coordinated; texts for people show world ranks.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/agreement_limits.hpp"
#include "negotiate/cache_ids.hpp"
#include "negotiate/failures.hpp"
#include "negotiate/members.hpp"
#include "negotiate/messages.hpp"
#include "negotiate/planned_groups.hpp"
#include "negotiate/ready_queue.hpp"
#include "negotiate/round.hpp"

namespace ciranda {

struct CoordinatorOptions {
  int size = 1;
  std::vector<int> ranks;          // the members' ranks in the world, ascending; empty: 0 to size - 1
  std::vector<std::string> hosts;  // label by rank, for messages; may be empty
  std::size_t fusion_threshold_bytes = 128 << 20;
  std::size_t cache_capacity = 65536;
  bool learned_order = true;
  bool reports_groups = false;  // ranks are told the learned groups, and may report them
  std::size_t most_groups = std::numeric_limits<std::size_t>::max();  // of a plan, about
  // How ranks may carry out small calls that all wait for; by messages only in a lane that is never taken down.
  Direct direct = Direct::kNot;
  AgreementLimits limits;
  std::uint64_t check_interval = 0;            // after how many entries results are compared; 0: never
  std::chrono::nanoseconds stall_warning{0};   // 0: never
  std::chrono::nanoseconds stall_shutdown{0};  // 0: never
  // Every call is waited for before the next: ranks that make theirs in different orders wait for each other for ever,
  // which is told by failing them when the warning is due.
  bool fails_other_orders = false;
};

class Coordinator {
 public:
  explicit Coordinator(CoordinatorOptions options);

  // --- what ranks report, in the order in which each rank sent it; an error means that the rank breaks the rules
  Status on_request(int rank, RequestMessage message, TimePoint now);
  Status on_ready(int rank, const ReadyMessage& message, TimePoint now);
  Status on_groups(int rank, const GroupsMessage& message, TimePoint now);
  Status on_duplicate(int rank, const DuplicateMessage& message, TimePoint now);
  Status on_input(int rank, InputMessage message, TimePoint now);
  Status on_no_input(int rank, const NoInputMessage& message);
  Status on_forgotten(int rank, const ForgottenMessage& message);
  Status on_join(int rank, const JoinMessage& message);
  void on_waiting(int rank) { members_.waits(rank); }
  // Whichever of these the message is; any other is nothing to the coordinator.
  Status on_message(int rank, Message&& message, TimePoint now);
  // All of this at once, from the first of the relays (relay.hpp). Then nothing comes from ranks themselves.
  Status on_relayed(const RelayedMessage& relayed, TimePoint now);
  // All ranks have met for a name, and reported nothing.
  void on_met(std::uint32_t cache_id, TimePoint now) {
    members_.all_heard(cache_ids_.name(cache_id).name, now);
    cache_ids_.note_use(cache_id);
  }
  // How ranks carry out the next call of such a name, if all wait for it. `first_dims`: as of NamedRounds.
  Direct direct_for(const Signature& signature, const std::vector<std::vector<std::int64_t>>& first_dims) const;
  bool has_waiting_rank() const { return is_waited_for_ || members_.has_waiting(); }
  // Whether some rank's call cannot be deferred, for which other ranks' reports may be all that lacks: this rank, the
  // coordinator's, has made its own.
  bool has_pressing_round() const { return n_pressing_rounds_ > 0; }

  // Fails every open round with `why`: the lane ends.
  void fail_all(const Status& why);

  // The entries to append to the log now. While the wire is busy, small requests are kept back to travel together.
  // Where requests have priorities, and enough bytes are under way already, all are kept back: what comes may be more
  // urgent.
  std::vector<LogEntry> take_entries(bool wire_is_idle, std::size_t n_bytes_under_way = 0);
  bool has_priorities() const { return ready_.has_priorities(); }

  // --- ranks that never come
  // Names that have waited longer than the warning time since the last report; fails those over the shutdown time.
  std::vector<StallReport> check_stalls(TimePoint now);
  // When check_stalls should next be called; none while nothing waits.
  std::optional<TimePoint> next_stall_check() const { return stall_check_due_; }

 private:
  struct Duplicate {
    int rank;
    bool was_pending;  // its first call is not answered yet
  };

  NamedRounds& name_for(const std::string& name, bool is_cacheable);
  void open_round(Round& round, TimePoint now);
  void arrive(NamedRounds& name, int rank, Arrival arrival, TimePoint now);
  Status check_cache_id(int rank, std::uint32_t cache_id) const;
  Status report(NamedRounds& name, Reported reported);
  Status hear(NamedRounds& name, Reported reported);
  Status hear_duplicate(NamedRounds& name, const Reported& reported);
  Status hear_later(NamedRounds& name);
  Status end_direct_round(NamedRounds& name);
  void end_hope_of_direct_round(Round& round);
  Status report(PlannedGroup& group, int rank, TimePoint now);
  Status report_by_all(const GroupsMessage& message, TimePoint now);
  void open(PlannedGroup& group, TimePoint now);
  void complete(PlannedGroup& group);
  void touch(NamedRounds& name);
  // The reports of a group, or of all groups, become those of its names.
  void disperse(PlannedGroup& group);
  void disperse_all();
  void close(PlannedGroup& group);
  void complete_round(NamedRounds& name);
  void close_round(NamedRounds& name);
  void forget_if_unused(NamedRounds& name);
  // Each rank that reported the round is told once, the one that did so twice (`duplicate`) twice; the rest owe it.
  void fail_round(NamedRounds& name, ErrorKind kind, const std::string& text,
                  std::optional<Duplicate> duplicate = std::nullopt);
  bool answer_owed(NamedRounds& name, int rank);
  // All ranks have taken part in a round, which opened when n_failed_before had failed.
  void forgive_duplicates(std::uint64_t n_failed_before, const Round* round);
  void forgive_joined(int rank);
  Check next_check(const ReadyQueue::Batch& batch);
  LogEntry execute(const ReadyQueue::Batch& batch);
  ExecuteItem execute_item(NamedRounds& name);
  void publish_plan(std::vector<LogEntry>& entries);
  bool may_do_without_log(const NamedRounds& name) const;
  bool may_do_unnamed_without_log(const NamedRounds& name) const;
  // A plan of groups by which ranks may still report keeps the cache ids of its names.
  bool takes_cache_ids_back() const { return !groups_.is_previous_in_use(); }
  std::optional<TimePoint> first_due(TimePoint opened, TimePoint next_report) const;
  void disperse_stalled(TimePoint now);

  CoordinatorOptions options_;
  Members members_;
  std::unordered_map<std::string, std::unique_ptr<NamedRounds>> names_;
  CacheIds cache_ids_;
  ReadyQueue ready_;
  PlannedGroups groups_;
  bool is_waited_for_ = false;     // as the relays say
  std::size_t n_open_rounds_ = 0;  // and groups
  std::size_t n_pressing_rounds_ = 0;
  std::optional<TimePoint> stall_check_due_;   // no later than the first report of an open round
  Failures failures_;                          // go into the log before what is carried out
  std::vector<CancelEntry> cancellations_;     // and these
  std::vector<NamedRounds*> owed_duplicates_;  // names some rank owes a duplicate's error
  std::uint64_t n_failed_rounds_ = 0;
  std::uint64_t n_times_all_joined_ = 0;
  std::uint64_t n_unchecked_ = 0;  // entries since results were last compared
};

}  // namespace ciranda
