// Coordinator: decides for all ranks which calls are executed, and in which order.
//
// It is a pure state machine: it takes reports of ranks and the time, and returns entries of the response log. It uses
// no socket, thread or clock. One rank of each lane runs it; every rank executes the log (participant.hpp).
// Called by LaneLog, and Lane, which asks how a call would be agreed on; one thread (the holder of the progress lock).
//
// A *negotiation* (negotiations.hpp) determines whether all ranks are ready for one use of a name, and agree on it.
// Every rank learns how each one ends, so no rank waits for ever, and the calls of all ranks stay paired. Ranks may
// report a planned group of names (planned_groups.hpp) as one.
//
// A rank that has *joined* reports nothing more: negotiations are complete without it, until all ranks have joined.
//
// "Rank" is a rank's index among the members of the lane; texts for people show world ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "agree/cache_ids.hpp"
#include "agree/coordinator_options.hpp"
#include "agree/members.hpp"
#include "agree/messages.hpp"
#include "agree/negotiations.hpp"
#include "agree/open_negotiations.hpp"
#include "agree/planned_groups.hpp"
#include "agree/ready_queue.hpp"
#include "agree/standstill.hpp"

namespace ciranda {

class Coordinator {
 public:
  explicit Coordinator(CoordinatorOptions options);

  // --- reports, in the order in which each rank sent them; an error means that the rank violates the protocol
  Status on_request(int rank, RequestMessage message, TimePoint now);
  Status on_ready(int rank, const ReadyMessage& message, TimePoint now);
  Status on_input(int rank, const InputMessage& message, TimePoint now);
  Status on_no_input(int rank, const NoInputMessage& message);
  Status on_forgotten(int rank, const ForgottenMessage& message);
  Status on_join(int rank, const JoinMessage& message);
  void on_waiting(int rank) { members_.waits(rank); }
  void on_standing(int rank, const StandingMessage& message) {
    if (!members_.has_joined(rank)) standstill_.stands(rank, message);
  }
  // The log gives turns in the order in which they were asked for.
  void on_turn(const TurnMessage& message) { turns_.push_back({message.lane, message.log_index}); }
  // Dispatches any of these messages, a report of groups, or a duplicate; ignores all others.
  Status on_message(int rank, Message&& message, TimePoint now);
  // Reports of many ranks, from the first of the relays (relay.hpp). With relays, no rank reports here directly.
  Status on_relayed(const RelayedMessage& relayed, TimePoint now);
  // All ranks have executed a call of this name in a direct round in memory, without a report.
  void on_direct_round(std::uint32_t cache_id, TimePoint now) {
    members_.note_report_of_all(cache_ids_.name(cache_id).name, now);
    cache_ids_.note_use(cache_id);
  }
  // How ranks may execute the next call of a name with this signature, if all of them wait for it. `first_dims`: as in
  // NameState.
  Direct direct_for(const Signature& signature, const FirstDims& first_dims) const;
  bool has_waiting_rank() const { return is_waited_for_ || members_.has_waiting(); }
  // As has_waiting_rank(), but false if no negotiation is open, because all calls are answered then.
  bool keeps_a_rank_waiting() const { return open_.n_open() > 0 && has_waiting_rank(); }
  // As in Negotiations.
  bool has_pressing_call() const { return negotiations_.has_pressing(); }

  // Fails every open negotiation with `why`, because the lane ends.
  void fail_all(const Status& why);

  // The entries to append to the log now. While transfers are under way, small requests are held back, to be fused with
  // later ones. With priorities and enough bytes under way, all are held back: a later one may be more urgent.
  std::vector<LogEntry> take_entries(bool wire_is_idle, std::size_t n_bytes_under_way = 0);
  // How long calls have waited for their last member, since the last call of take_held_up().
  bool has_held_up() const { return members_.has_held_up(); }
  std::vector<HeldUp> take_held_up() { return members_.take_held_up(); }
  // Who has reported which call, since the last call of take_arrivals(); for reports while they are kept.
  void keep_arrivals(bool keeps) { members_.keep_arrivals(keeps); }
  bool has_arrivals() const { return members_.has_arrivals(); }
  std::vector<ArrivedCall> take_arrivals() { return members_.take_arrivals(); }
  bool has_priorities() const { return ready_.has_priorities(); }

  // --- stalls
  // Reports names that have waited for long (see OpenNegotiations::check()); fails those over the shutdown time.
  std::vector<StallReport> check_stalls(TimePoint now);
  // When check_stalls() is due next; none while no negotiation is open.
  std::optional<TimePoint> next_stall_check() const { return open_.due(); }

 private:
  Status check_cache_id(int rank, std::uint32_t cache_id) const;
  Status report(NameState& name, Reported reported);
  // Ends the negotiations of the batch.
  LogEntry execute(const ReadyQueue::Batch& batch);
  ExecuteItem execute(NameState& name);
  Check next_check(const ReadyQueue::Batch& batch);
  bool may_do_without_log(const NameState& name) const;

  const CoordinatorOptions options_;
  Members members_;
  CacheIds cache_ids_;
  ReadyQueue ready_;
  OpenNegotiations open_;
  Negotiations negotiations_;
  PlannedGroups groups_;
  Standstill standstill_;
  std::vector<TurnEntry> turns_;
  bool is_waited_for_ = false;  // according to the relays
  std::uint64_t n_times_all_joined_ = 0;
  std::uint64_t n_entries_ = 0;    // entries in the log
  std::uint64_t n_unchecked_ = 0;  // entries since results were last compared
};

}  // namespace ciranda
