// Coordinator: decides, for all ranks, what is carried out and in which order.
//
// It is a pure state machine: reports of ranks and the time go in, entries of the response log come out. It knows
// no socket, no thread and no clock. One rank of the world runs it; every rank executes the log (participant.hpp).
//
// A *round* (rounds.hpp) is one use of a name. When it ends every rank hears of it, so that nobody is left waiting, and
// the calls of all ranks stay paired. A planned group of names (planned_groups.hpp) may be reported as one.
//
// A rank that has *joined* reports nothing more: rounds are complete without it, until all ranks have joined.
//
// "Rank" is a rank's place among the members of the lane that is coordinated; texts for people show world ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "agree/cache_ids.hpp"
#include "agree/coordinator_options.hpp"
#include "agree/members.hpp"
#include "agree/messages.hpp"
#include "agree/open_rounds.hpp"
#include "agree/planned_groups.hpp"
#include "agree/ready_queue.hpp"
#include "agree/rounds.hpp"
#include "agree/standstill.hpp"

namespace ciranda {

class Coordinator {
 public:
  explicit Coordinator(CoordinatorOptions options);

  // --- what ranks report, in the order in which each rank sent it; an error means that the rank breaks the rules
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
  // Whichever of these the message is, a report of groups, or a duplicate; any other is nothing to the coordinator.
  Status on_message(int rank, Message&& message, TimePoint now);
  // All of this at once, from the first of the relays (relay.hpp). Then nothing comes from ranks themselves.
  Status on_relayed(const RelayedMessage& relayed, TimePoint now);
  // All ranks have met for a name, and reported nothing.
  void on_met(std::uint32_t cache_id, TimePoint now) {
    members_.all_heard(cache_ids_.name(cache_id).name, now);
    cache_ids_.note_use(cache_id);
  }
  // How ranks carry out the next call of such a name, if all wait for it. `first_dims`: as of NamedRounds.
  Direct direct_for(const Signature& signature, const FirstDims& first_dims) const;
  bool has_waiting_rank() const { return is_waited_for_ || members_.has_waiting(); }
  // Not one that has got what it waited for, and has reported nothing since.
  bool keeps_a_rank_waiting() const { return open_.n_open() > 0 && has_waiting_rank(); }
  // As of Rounds.
  bool has_pressing_round() const { return rounds_.has_pressing(); }

  // Fails every open round with `why`: the lane ends.
  void fail_all(const Status& why);

  // The entries to append to the log now. While the wire is busy, small requests are kept back to travel together.
  // Where requests have priorities, and enough bytes are under way already, all are kept back: what comes may be more
  // urgent.
  std::vector<LogEntry> take_entries(bool wire_is_idle, std::size_t n_bytes_under_way = 0);
  bool has_priorities() const { return ready_.has_priorities(); }

  // --- ranks that never come
  // Names that have waited for long (see OpenRounds::check()); fails those over the shutdown time.
  std::vector<StallReport> check_stalls(TimePoint now);
  // When check_stalls should next be called; none while nothing waits.
  std::optional<TimePoint> next_stall_check() const { return open_.due(); }

 private:
  Status check_cache_id(int rank, std::uint32_t cache_id) const;
  Status report(NamedRounds& name, Reported reported);
  // Their rounds are over then.
  LogEntry execute(const ReadyQueue::Batch& batch);
  ExecuteItem execute(NamedRounds& name);
  Check next_check(const ReadyQueue::Batch& batch);
  bool may_do_without_log(const NamedRounds& name) const;

  const CoordinatorOptions options_;
  Members members_;
  CacheIds cache_ids_;
  ReadyQueue ready_;
  OpenRounds open_;
  Rounds rounds_;
  PlannedGroups groups_;
  Standstill standstill_;
  bool is_waited_for_ = false;  // as the relays say
  std::uint64_t n_times_all_joined_ = 0;
  std::uint64_t n_entries_ = 0;    // of the log
  std::uint64_t n_unchecked_ = 0;  // entries since results were last compared
};

}  // namespace ciranda
