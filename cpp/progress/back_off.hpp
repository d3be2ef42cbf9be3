// BackOff: how a thread that runs the progress loop passes the time while nothing moves: it looks again at once for the
// time in which a running peer answers, then yields its core between looks, and in the end gives up. Where others have
// work on the core, so that a yield gives them a slice of milliseconds, it gives up instead of yielding.
//
// One thread. No failure.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>

#include "transport/mesh.hpp"

namespace ciranda {

// Whether threads that wait find their core shared, from one wait to the next: most waits are too short to tell.
// Thread-safe.
struct CoreSharing {
  using Clock = std::chrono::steady_clock;

  // Of two ranks that share a core one must step aside first: if both do, they meet again.
  explicit CoreSharing(int rank) : n_yields_before_step_aside(8 * (1 + rank % 4)) {}

  const int n_yields_before_step_aside;
  std::atomic<int> n_yields{0};  // in a row, that let somebody else run
  std::atomic<Clock::time_point> no_yield_before{Clock::time_point::min()};
};

// Whether more ranks than there are cores share this one's host.
bool is_oversubscribed(const Mesh& mesh);

class BackOff {
 public:
  using Clock = CoreSharing::Clock;

  // Gives up after `limit` in which nothing moved, and before its first yield for some time after one that took longer
  // than that. Oversubscribed: there are more ranks than cores, so it yields at once. REQUIRES: `sharing` outlives
  // this.
  BackOff(Clock::duration limit, bool is_oversubscribed, CoreSharing& sharing)
      : limit_(limit), is_oversubscribed_(is_oversubscribed), sharing_(sharing) {}

  // Something moved. (When, is asked for only once nothing has moved for a while: most waits are over before.)
  void renew() {
    n_looks_ = 0;
    idle_since_.reset();
  }

  // Nothing moved: passes a moment. False when it is time to give up.
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
