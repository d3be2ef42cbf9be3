// ProgressLoop: each iteration takes in submissions, advances the agreement, executes one step of each lane, and
// completes operations. Called by ProgressThreads, which decides which thread holds the progress lock; repeat() and
// first_lane() by Engine, through it. One thread (the holder of the progress lock).
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "base/thread_annotations.hpp"
#include "engine/lanes.hpp"
#include "engine/world_parts.hpp"
#include "execute/submission.hpp"

namespace ciranda {

class ProgressLoop {
 public:
  // `world` outlives this.
  explicit ProgressLoop(WorldParts& world);

  // The queue for the next iteration. Any thread may push to it.
  SubmissionQueue& submissions() { return submissions_; }

  // Runs one iteration. Returns whether anything moved.
  bool run() REQUIRES(progress_lock);

  // Takes in a submission. If it is at a direct round in memory, polls the round up to `n_looks` times. Returns whether
  // it is done or still at the round: then no other rank needs a report of it. REQUIRES: the queue is empty.
  bool submit(Submission&& submission, int n_looks) REQUIRES(progress_lock);

  // REQUIRES: the queue is empty.
  RoundsInMemory::Outcome repeat(const Call& call, OpHandle* handle, Stages* stages, int n_looks)
      REQUIRES(progress_lock) {
    Lane* const lane = failure_ ? nullptr : lanes_.find_for(call);
    return lane == nullptr ? std::nullopt : lane->repeat(call, handle, stages, n_looks);
  }

  // A thread waits, so requests must not be held back for fusion with later ones. `awaited`: the operation for which it
  // waits. If that is the only submission in the queue, the call may use a direct round, as a blocking call does. Cheap
  // to call again.
  void expect_no_more(const Operation* awaited = nullptr) REQUIRES(progress_lock);

  // No thread will poll any longer. Closes the direct rounds in memory that are incomplete, and reports their calls. If
  // a thread waits, nothing is held back any longer, and peers with lazily sent messages are woken. Returns which
  // messages must wake this rank: lazy ones too, if a thread, here or on another rank, may depend on them. Cheap to
  // call again.
  Sleeper stop_looking(bool is_any_waiting) REQUIRES(progress_lock);

  // Whether this rank must report a standstill (agree/standstill.hpp) if none of its threads can make a call: all of
  // its pending calls are in one lane, and it has not reported the standstill yet.
  bool has_to_stand() const REQUIRES(progress_lock);
  // Reports the standstill. REQUIRES: has_to_stand(), and no thread of this rank can make a call.
  void report_standstill() REQUIRES(progress_lock);
  // Withdraws the report: a thread of this rank can make a call again.
  void withdraw_standstill() REQUIRES(progress_lock);

  // Says goodbye to the peers and fails pending requests with Aborted.
  void send_bye() REQUIRES(progress_lock);
  bool is_bye_known() const REQUIRES(progress_lock);
  // Tells the peers that this rank does nothing more for them.
  void send_gone() REQUIRES(progress_lock);

  // The first lane of the world.
  const Lane& first_lane() const REQUIRES(progress_lock) { return lanes_.first(); }

  // A call of this rank is at a direct round in memory that is not complete.
  bool is_at_round() const REQUIRES(progress_lock);
  bool has_work() const REQUIRES(progress_lock);
  std::optional<TimePoint> next_deadline() const REQUIRES(progress_lock);

 private:
  bool take_submissions(TimePoint now, const Operation* awaited = nullptr) REQUIRES(progress_lock);
  Lane* take(Submission&& submission, TimePoint now) REQUIRES(progress_lock);
  Result<bool> agree(TimePoint now) REQUIRES(progress_lock);
  Result<bool> execute(TimePoint now) REQUIRES(progress_lock);
  void handle_departures() REQUIRES(progress_lock);
  void break_world(Status why) REQUIRES(progress_lock);
  void keep_own_memory() REQUIRES(progress_lock);
  void note_state(TimePoint now) REQUIRES(progress_lock);

  static constexpr std::size_t kMostRoomKept = 4096;  // of `taken_`, in submissions

  Mesh& mesh_;
  WorldParts& world_;
  SubmissionQueue submissions_;
  Lanes lanes_ GUARDED_BY(progress_lock);
  std::vector<Submission> taken_ GUARDED_BY(progress_lock);  // empty except inside take_submissions()
  std::optional<Status> failure_ GUARDED_BY(progress_lock);  // the world is broken: every request fails with this
  std::size_t n_departures_handled_ GUARDED_BY(progress_lock) = 0;
  struct StandstillReport {
    LaneId lane;
    StandingMessage standing;
  };
  std::optional<StandstillReport> last_report_
      GUARDED_BY(progress_lock);                   // this rank's last report of a standstill, until its next call
  TimePoint next_note_ GUARDED_BY(progress_lock);  // when note_state() is due
  bool has_lazy_news_ GUARDED_BY(progress_lock) = false;  // the last notification of the peers was a lazy one
};

}  // namespace ciranda
