// Turn: one turn of the engine: take submissions in, agree, execute a step, complete. Everything here belongs to the
// holder of the progress token; engine.cc decides which thread that is.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "engine/control_plane.hpp"
#include "engine/data_plane.hpp"
#include "engine/in_flight.hpp"

namespace ciranda {

// What any thread may do: leave a request to be taken in by the next turn.
class SubmissionQueue {
 public:
  struct Submission {
    Request request;
    std::shared_ptr<Operation> operation;
    bool is_duplicate = false;
  };

  void push(Submission submission) {
    const std::lock_guard lock(mutex_);
    submissions_.push_back(std::move(submission));
    is_empty_.store(false);
  }
  bool is_empty() const { return is_empty_.load(); }
  std::vector<Submission> take() {
    std::vector<Submission> taken;
    const std::lock_guard lock(mutex_);
    taken.swap(submissions_);
    is_empty_.store(true);
    return taken;
  }

 private:
  std::mutex mutex_;
  std::vector<Submission> submissions_;
  std::atomic<bool> is_empty_{true};
};

class Turn {
 public:
  Turn(Mesh& mesh, const Config& config, SubmissionQueue& submissions, NamesInUse& names);

  // Returns whether anything moved.
  bool run();

  // A thread waits: requests must not be held back to travel with later ones. Cheap to call again.
  void expect_no_more();

  // Ends everything: pending requests fail with Aborted, the peers are told.
  void say_bye();
  bool is_bye_known() const { return failure_.has_value() || control_.is_bye_known(); }

  // Whether lazy news should wake this rank when it sleeps: a rank elsewhere waits for what is agreed here.
  bool awaits_lazy_news() const { return control_.has_waiting_rank(); }

  bool has_work() const { return !in_flight_.empty() || !submissions_.is_empty(); }
  std::optional<TimePoint> next_deadline() const;

 private:
  bool take_submissions(TimePoint now);
  void apply(std::vector<Participant::Action>& actions);
  void heed_departure();
  void break_circle(Status why, bool tell_others);
  bool execute(TimePoint now);
  void watch_wire(TimePoint now);

  Mesh& mesh_;
  Logger logger_;
  SubmissionQueue& submissions_;
  NamesInUse& names_;
  InFlight in_flight_;
  ControlPlane control_;
  DataPlane data_;
  std::vector<Participant::Action> actions_;
  std::optional<Status> failure_;  // the circle is broken, or ended: every request fails with this
  std::optional<Status> parting_;  // somebody left: what is not agreed yet fails with this
  std::uint64_t log_end_ = std::numeric_limits<std::uint64_t>::max();  // entries from here on are not carried out
  bool has_said_waiting_ = false;
  std::chrono::nanoseconds stall_warning_;
  std::chrono::nanoseconds stall_shutdown_;
  std::optional<TimePoint> stuck_since_;  // the wire has not moved since
  TimePoint next_stuck_report_;
};

}  // namespace ciranda
