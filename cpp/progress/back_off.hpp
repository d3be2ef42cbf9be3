// BackOff: the waiting strategy of a thread that runs the progress loop while nothing moves. The thread polls without a
// pause for the time in which a running peer answers, then yields its core between polls, and finally gives up. If
// other threads have work on the core, a yield would cost a time slice of milliseconds, so it gives up instead of
// yielding.
//
// Called by ProgressThreads; one thread. No failure.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>

#include "transport/mesh.hpp"

namespace ciranda {

// Remembers from one wait to the next whether waiting threads share their core with others: most waits are too short to
// detect that. Thread-safe.
struct CoreSharing {
  using Clock = std::chrono::steady_clock;

  // If two ranks share a core, one must move to another core first. If both move at once, they share a core again.
  explicit CoreSharing(int rank) : n_yields_before_step_aside(8 * (1 + rank % 4)) {}

  const int n_yields_before_step_aside;
  std::atomic<int> n_yields{0};  // consecutive yields in which another thread ran
  std::atomic<Clock::time_point> no_yield_before{Clock::time_point::min()};
};

// Whether this rank's host has more ranks than cores.
bool is_oversubscribed(const Mesh& mesh);

class BackOff {
 public:
  using Clock = CoreSharing::Clock;

  // Gives up when nothing has moved for `limit`. After a yield that took longer than `limit`, it gives up instead of
  // yielding for some time. If oversubscribed (more ranks than cores), it yields at once. REQUIRES: `sharing` outlives
  // this.
  BackOff(Clock::duration limit, bool is_oversubscribed, CoreSharing& sharing)
      : limit_(limit), is_oversubscribed_(is_oversubscribed), sharing_(sharing) {}

  // Something moved. Does not read the clock: look_again() does so once nothing has moved for a while, and most waits
  // are over before.
  void renew() {
    n_looks_ = 0;
    idle_since_.reset();
  }

  // Nothing moved: pauses or yields. Returns false when it is time to give up.
  bool look_again();

 private:
  Clock::time_point yield(Clock::time_point begin);
  void learn_from(Clock::time_point begin, Clock::time_point end);

  Clock::duration limit_;
  bool is_oversubscribed_;
  CoreSharing& sharing_;
  int n_looks_ = 0;
  std::optional<Clock::time_point> idle_since_;
};

}  // namespace ciranda
