// BackOff: how a thread that runs the progress loop passes the time while nothing moves: it looks again at once for the
// time in which a running peer answers, then yields its core between looks, and in the end gives up.
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
  // Of two ranks that share a core one must step aside first: if both do, they meet again.
  explicit CoreSharing(int rank) : n_yields_before_step_aside(8 * (1 + rank % 4)) {}

  const int n_yields_before_step_aside;
  std::atomic<int> n_yields{0};  // in a row, that let somebody else run
};

// Whether more ranks than there are cores share this one's host.
bool is_oversubscribed(const Mesh& mesh);

class BackOff {
 public:
  using Clock = std::chrono::steady_clock;

  // Gives up after `limit` in which nothing moved. Oversubscribed: there are more ranks than cores, so it yields at
  // once. REQUIRES: `sharing` outlives this.
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
  void yield();

  Clock::duration limit_;
  bool is_oversubscribed_;
  CoreSharing& sharing_;
  int n_looks_ = 0;
  std::optional<Clock::time_point> idle_since_;
};

}  // namespace ciranda
