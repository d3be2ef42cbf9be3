// ProgressLoop: in each iteration it takes submissions in, agrees, executes a step of each lane, and completes.
// Everything here belongs to the holder of the progress lock; engine.cc decides which thread that is.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "agree/process_sets.hpp"
#include "engine/control_plane.hpp"
#include "engine/kept_submissions.hpp"
#include "engine/lane.hpp"
#include "execute/submission.hpp"
#include "transport/lane_mux.hpp"

namespace ciranda {

class ProgressLoop final : private LaneMessages, private LaneChanges {
 public:
  // All outlive this.
  ProgressLoop(Mesh& mesh, const Config& config, SubmissionQueue& submissions, const Names& names, ProcessSets& sets,
               Recorder& recorder, std::span<const BackendRow> backends);

  // Returns whether anything moved.
  bool run();

  // Takes a submission in, and looks up to so many times whether all ranks meet for it. Returns whether it is over, or
  // at a direct round: then nobody need be told. REQUIRES: the queue is empty.
  bool submit(Submission&& submission, int n_looks);

  // Of the world. REQUIRES: the queue is empty.
  RoundsInMemory::Outcome repeat(const Call& call, Stages* stages, int n_looks) {
    return failure_ ? std::nullopt : lanes_.front()->repeat(call, stages, n_looks);
  }

  // A thread waits: requests must not be held back to travel with later ones. Cheap to call again.
  void expect_no_more();

  // No thread looks any longer: what waits for others to come to a direct round in memory is reported instead. Cheap to
  // call again.
  void leave_rounds();

  // Ends everything: pending requests fail with Aborted, the peers are told.
  void say_bye();
  bool is_bye_known() const;

  // A thread waits and will look no longer: wakes the others for what they were told lazily. Cheap to call again.
  void insist();

  // Whether lazy news should wake this rank when it sleeps: somebody, here or elsewhere, waits for what comes of it.
  bool awaits_lazy_news() const;

  // The world's.
  const Lane& first_lane() const { return *lanes_.front(); }

  bool has_work() const;
  std::optional<TimePoint> next_deadline() const;

  // Any thread's.
  std::uint64_t n_met() const { return n_met_.load(std::memory_order_relaxed); }
  bool has_failed() const { return has_failed_.load(); }
  void note_failure() { has_failed_.store(true); }

 private:
  Status on_message(int peer, LaneId lane, Message message, TimePoint now) override;
  Status change_sets(const Request& request, std::int64_t& result) override;
  Status hear_early(Lane& lane, TimePoint now);

  bool take_submissions(TimePoint now);
  Lane* take(Submission&& submission, TimePoint now);
  void join(Submission&& submission, TimePoint now);
  std::optional<Status> refusal_of(const Request& request) const;
  bool must_wait(LaneId id, const Lane* lane) const;
  void ask_for_lane(LaneId id, TimePoint now);
  void submit_what_was_kept(TimePoint now);
  void fail(std::vector<Submission> submissions, const Status& why);
  Result<bool> agree(TimePoint now);
  Result<bool> execute(TimePoint now);
  void heed_departures();
  void remove_lanes_that_are_over();
  void break_world(Status why, bool tell_others);
  void keep_own_memory();

  Lane* find(LaneId id) const;
  Lane* find_or_make(LaneId id);
  Lane& make_lane(LaneId id, const std::vector<int>& ranks);
  void make_lanes(std::uint32_t process_set, const std::vector<int>& ranks);
  Status add_set(const Request& request, std::int64_t& result);
  Status remove_set(const Request& request, std::int64_t& result);
  Status add_lane(const Request& request);

  Mesh& mesh_;
  const Config config_;
  Logger logger_;
  SubmissionQueue& submissions_;
  const Names names_;
  ProcessSets& sets_;
  Recorder& recorder_;
  std::span<const BackendRow> backends_;
  std::atomic<std::uint64_t> n_met_{0};  // calls
  std::atomic<bool> has_failed_{false};
  OutputMemory output_memory_;
  LaneMux mux_;
  ControlPlane control_;
  std::vector<std::unique_ptr<Lane>> lanes_;  // the first is the world's
  std::unordered_map<LaneId, Lane*> lane_by_id_;
  // What came for lanes of sets that this rank does not know yet: the news of them is on its way.
  struct Early {
    int peer;
    LaneId lane;
    Message message;
  };
  std::vector<Early> early_;
  std::vector<Submission> taken_;  // empty but while they are taken in
  KeptSubmissions kept_;
  // By which the ranks agree on a lane, while they do.
  std::unordered_map<LaneId, std::shared_ptr<Operation>> asked_for_;
  std::optional<Status> failure_;  // the world is broken, or ended: every request fails with this
  std::size_t n_departures_heeded_ = 0;
  bool has_lazy_news_ = false;  // the last that the others were told may wait until they wake
};

}  // namespace ciranda
