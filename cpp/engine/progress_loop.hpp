// ProgressLoop: each iteration takes in submissions, advances the agreement, executes one step of each lane, and
// completes operations. Only the holder of the progress lock may use it, except submissions(). ProgressThreads decides
// which thread holds the lock.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

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
  bool run();

  // Takes in a submission. If it is at a direct round in memory, polls the round up to `n_looks` times. Returns whether
  // it is done or still at the round: then no other rank needs a report of it. REQUIRES: the queue is empty.
  bool submit(Submission&& submission, int n_looks);

  // REQUIRES: the queue is empty.
  RoundsInMemory::Outcome repeat(const Call& call, OpHandle* handle, Stages* stages, int n_looks) {
    Lane* const lane = failure_ ? nullptr : lanes_.find_for(call);
    return lane == nullptr ? std::nullopt : lane->repeat(call, handle, stages, n_looks);
  }

  // A thread waits, so requests must not be held back for fusion with later ones. If `awaited`, its operation, is the
  // only submission in the queue, the call may use a direct round, as a blocking call does. Cheap to call again.
  void expect_no_more(const Operation* awaited = nullptr);

  // No thread will poll any longer. Closes the direct rounds in memory that are incomplete, and reports their calls. If
  // a thread waits, nothing is held back any longer, and peers with lazily sent messages are woken. Returns which
  // messages must wake this rank: lazy ones too, if a thread, here or on another rank, may depend on them. Cheap to
  // call again.
  Sleeper stop_looking(bool is_any_waiting);

  // Whether this rank must report a standstill (agree/standstill.hpp) if none of its threads can make a call: all of
  // its pending calls are in one lane, and it has not reported the standstill yet.
  bool has_to_stand() const;
  // Reports the standstill. REQUIRES: has_to_stand(), and no thread of this rank can make a call.
  void say_standing();
  // Withdraws the report: a thread of this rank can make a call again.
  void say_moving();

  // Says goodbye to the peers and fails pending requests with Aborted.
  void say_bye();
  bool is_bye_known() const;

  // The first lane of the world.
  const Lane& first_lane() const { return lanes_.first(); }

  // A call of this rank is at a direct round in memory that is not complete.
  bool is_at_round() const;
  bool has_work() const;
  std::optional<TimePoint> next_deadline() const;

 private:
  bool take_submissions(TimePoint now, const Operation* awaited = nullptr);
  Lane* take(Submission&& submission, TimePoint now);
  Result<bool> agree(TimePoint now);
  Result<bool> execute(TimePoint now);
  void heed_departures();
  void break_world(Status why);
  void keep_own_memory();

  static constexpr std::size_t kMostRoomKept = 4096;  // of `taken_`, in submissions

  Mesh& mesh_;
  WorldParts& world_;
  SubmissionQueue submissions_;
  Lanes lanes_;
  std::vector<Submission> taken_;  // empty except inside take_submissions()
  std::optional<Status> failure_;  // the world is broken: every request fails with this
  std::size_t n_departures_heeded_ = 0;
  struct Said {
    LaneId lane;
    StandingMessage standing;
  };
  std::optional<Said> said_;    // this rank's last report of a standstill, until its next call
  bool has_lazy_news_ = false;  // the last notification of the peers was a lazy one
};

}  // namespace ciranda
