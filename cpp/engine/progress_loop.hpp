// ProgressLoop: in each iteration it takes submissions in, agrees, executes a step of each lane, and completes.
// Everything here but submissions() belongs to the holder of the progress lock; ProgressThreads decides which thread
// that is.
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

  // What any thread leaves for the next iteration.
  SubmissionQueue& submissions() { return submissions_; }

  // Returns whether anything moved.
  bool run();

  // Takes a submission in, and looks up to so many times whether all ranks meet for it. Returns whether it is over, or
  // at a direct round: then nobody need be told. REQUIRES: the queue is empty.
  bool submit(Submission&& submission, int n_looks);

  // REQUIRES: the queue is empty.
  RoundsInMemory::Outcome repeat(const Call& call, OpHandle* handle, Stages* stages, int n_looks) {
    Lane* const lane = failure_ ? nullptr : lanes_.find_for(call);
    return lane == nullptr ? std::nullopt : lane->repeat(call, handle, stages, n_looks);
  }

  // A thread waits: requests must not be held back to travel with later ones. If what it waits for, `awaited`, is all
  // that was submitted since, it may go by a direct round, as a blocking call does. Cheap to call again.
  void expect_no_more(const Operation* awaited = nullptr);

  // No thread looks any longer: what waits for others to come to a direct round in memory is reported instead. Where a
  // thread waits nothing is held back, and the others are woken for what they were told lazily. Returns what is to wake
  // this rank: lazy news, too, if somebody, here or elsewhere, waits for what comes of it. Cheap to call again.
  Sleeper stop_looking(bool is_any_waiting);

  // Whether this rank could say that it stands (agree/standstill.hpp), if none of its threads can make a call, and has
  // not said so yet: there is a lane in which all wait.
  bool has_to_stand() const;
  // REQUIRES: has_to_stand(), and none of its threads can.
  void say_standing();
  // One of them can again.
  void say_moving();

  // Ends everything: pending requests fail with Aborted, the peers are told.
  void say_bye();
  bool is_bye_known() const;

  // The world's.
  const Lane& first_lane() const { return lanes_.first(); }

  // A call has come to a direct round in memory to which others have yet to come.
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

  static constexpr std::size_t kMostRoomKept = 4096;  // for submissions

  Mesh& mesh_;
  WorldParts& world_;
  SubmissionQueue submissions_;
  Lanes lanes_;
  std::vector<Submission> taken_;  // empty but while they are taken in
  std::optional<Status> failure_;  // the world is broken: every request fails with this
  std::size_t n_departures_heeded_ = 0;
  struct Said {
    LaneId lane;
    StandingMessage standing;
  };
  std::optional<Said> said_;    // what this rank has said last of standing, while it has made no call since
  bool has_lazy_news_ = false;  // the last that the others were told may wait until they wake
};

}  // namespace ciranda
