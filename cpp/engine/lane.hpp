// Lane: a communicator: some ranks, their ordered log, and its execution. The world has one or more lanes, and so has
// each process set. Lanes are independent and progress concurrently.
//
// Called by ProgressLoop in every iteration, Lanes, which owns the lanes, and Engine with questions to the first lane;
// one thread (the holder of the progress lock).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "agree/participant.hpp"
#include "agree/process_sets.hpp"
#include "agree/turns.hpp"
#include "base/thread_annotations.hpp"
#include "engine/answer_watch.hpp"
#include "engine/control_plane.hpp"
#include "engine/lane_log.hpp"
#include "engine/lane_parts.hpp"
#include "engine/reports.hpp"
#include "engine/rounds_by_messages.hpp"
#include "engine/rounds_in_memory.hpp"
#include "engine/stall_detector.hpp"
#include "engine/world_parts.hpp"
#include "execute/data_plane.hpp"
#include "execute/in_flight.hpp"
#include "execute/submission.hpp"
#include "transport/lane_mesh.hpp"

namespace ciranda {

// Executes an entry that adds or removes sets or lanes, at its position in the log. The returned status and `result`
// are the result of the request.
using ChangeSets = std::function<Status(const Request& request, std::int64_t& result)>;

class Lane {
 public:
  // `ranks`: ascending, and includes this rank. `arena`: shared by exactly these ranks, or null. `arena` and `world`
  // outlive the lane.
  Lane(LaneId id, const std::vector<int>& ranks, SharedArena* arena, WorldParts& world, ChangeSets change_sets);

  LaneId id() const { return id_; }
  // The log has ended, and all of its entries are executed; their results are there.
  bool is_over() const REQUIRES(progress_lock) { return has_ended_ && data_.is_idle() && !data_.awaits_results(); }
  // The rank (of the world) that ended the set by leaving it; none if the set was removed. REQUIRES: is_over().
  std::optional<int> leaver() const REQUIRES(progress_lock) { return leaver_; }
  bool has_pending() const REQUIRES(progress_lock) { return !in_flight_.empty(); }
  // This rank has joined, and as far as it knows not all ranks have.
  bool has_joined() const REQUIRES(progress_lock) { return participant_.calls().has_joined(); }
  RoundsInMemory& rounds() REQUIRES(progress_lock) { return in_memory_; }
  const DataPlane& data() const REQUIRES(progress_lock) { return data_; }
  std::size_t n_slot_bytes() REQUIRES(progress_lock) { return data_.n_slot_bytes(); }  // as DataPlane::n_slot_bytes()

  void submit(Submission&& submission, TimePoint now) REQUIRES(progress_lock);
  RoundsInMemory::Outcome repeat(const Call& call, OpHandle* handle, Stages* stages, int n_looks)
      REQUIRES(progress_lock);
  // The submission's request is empty if this lane joins because the first lane of its set does. REQUIRES: no join is
  // pending in this lane.
  void join(Submission&& submission, TimePoint now) REQUIRES(progress_lock);
  Status on_message(int world_rank, Message message, TimePoint now) REQUIRES(progress_lock);

  // agree() advances the agreement, execute() the data, each by one step. Both return whether anything moved. An error
  // breaks the world.
  Result<bool> agree(TimePoint now) REQUIRES(progress_lock);
  Result<bool> execute(TimePoint now) REQUIRES(progress_lock);

  // See RoundsByMessages.
  bool awaits_inputs() const REQUIRES(progress_lock) { return !by_messages_.empty(); }

  // A thread of this rank waits, so nothing may be held back. Returns whether this was reported to the coordinator now.
  bool expect_no_more() REQUIRES(progress_lock) { return in_flight_.has_deferrable() && reports_.report_waiting(); }
  // Whether this lane may be waiting for messages that are sent lazily: data of an entry in execution, or a report.
  bool awaits_lazy_news() const REQUIRES(progress_lock) {
    return !data_.is_idle() || log_.awaits_reports(in_flight_.has_undeferrable());
  }

  // The message by which this rank could report a standstill, if all of its threads wait for answers of this lane. None
  // if it has joined, if the lane is ending, or if a call is being executed or is at a direct round in memory.
  std::optional<StandingMessage> standing() const REQUIRES(progress_lock);
  void report(const StandingMessage& standing, TimePoint now) REQUIRES(progress_lock);

  // A rank has left. If it is a member, entries that it has executed are still executed here; nothing later can be.
  void on_departure(const Departure& departure) REQUIRES(progress_lock);
  // Fails the pending calls that can no longer be agreed on.
  void fail_impossible() REQUIRES(progress_lock);
  // Fails all calls at once.
  void give_up(const Status& why) REQUIRES(progress_lock);
  // See DataPlane.
  bool abort_graphs() REQUIRES(progress_lock) { return data_.abort_graphs(); }
  // Takes the lane down: agreed calls are executed, all others fail with `why`.
  void end(const Status& why) REQUIRES(progress_lock);
  // This rank leaves the lane's set. Its pending calls are still executed if the other members make them; then the lane
  // ends for all members. New calls fail with `why`. REQUIRES: the set is formed.
  void leave(const Status& why) REQUIRES(progress_lock);

  // Of the members that have left the world, the one that did first, as far as this rank knows; -1: none has.
  int first_leaver() const REQUIRES(progress_lock) { return first_leaver_; }

  // See Engine.
  std::string_view agreement(Collective collective, std::size_t n_bytes) const REQUIRES(progress_lock);

  std::optional<TimePoint> next_deadline() const REQUIRES(progress_lock);

 private:
  std::optional<Ticket> take_in(Submission&& submission, TimePoint now) REQUIRES(progress_lock);
  Status apply(const LogMessage& log, TimePoint now) REQUIRES(progress_lock);
  Status apply(Participant::Action action, TimePoint now) REQUIRES(progress_lock);
  void take_turn(const Participant::Execute& entry) REQUIRES(progress_lock);
  void ask_for_turns(TimePoint now) REQUIRES(progress_lock);
  Status look_at_results(TimePoint now) REQUIRES(progress_lock);

  LaneId id_;
  std::atomic<bool>& has_failed_;
  const ChangeSets change_sets_;
  LaneMesh mesh_;
  InFlight in_flight_ GUARDED_BY(progress_lock);
  Participant participant_ GUARDED_BY(progress_lock);
  LaneLog log_ GUARDED_BY(progress_lock);
  Turns& all_turns_ GUARDED_BY(progress_lock);
  LaneTurns turns_ GUARDED_BY(progress_lock);
  Reports reports_ GUARDED_BY(progress_lock);
  DataPlane data_ GUARDED_BY(progress_lock);
  const LaneParts parts_;
  RoundsInMemory in_memory_ GUARDED_BY(progress_lock);
  RoundsByMessages by_messages_ GUARDED_BY(progress_lock);
  AnswerWatch answers_ GUARDED_BY(progress_lock);
  StallDetector stall_detector_ GUARDED_BY(progress_lock);
  StallDetector stalled_results_ GUARDED_BY(progress_lock);  // of calls that are done
  std::uint64_t n_logged_ GUARDED_BY(progress_lock) = 0;
  // When the newest part of the log arrived, in ticks; 0 if that is not recorded.
  std::uint64_t log_arrived_ GUARDED_BY(progress_lock) = 0;
  std::uint64_t log_end_ GUARDED_BY(progress_lock);          // entries from this index on are not executed
  std::optional<Status> parting_ GUARDED_BY(progress_lock);  // set when nothing new can be agreed on: why
  bool is_leaving_ GUARDED_BY(progress_lock) = false;        // this rank leaves the set, and has yet to report it
  bool has_ended_ GUARDED_BY(progress_lock) = false;
  std::optional<int> leaver_ GUARDED_BY(progress_lock);
  int first_leaver_ GUARDED_BY(progress_lock) = -1;
  // At the world's first lane, when its coordinator has left: how long its log is.
  std::optional<std::uint64_t> last_turn_at_ GUARDED_BY(progress_lock);
};

}  // namespace ciranda
