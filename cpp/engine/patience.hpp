// Patience: how a thread that turns the engine passes the time while nothing moves: it looks again at once for the time
// in which a running peer answers, then yields its core between looks, and in the end gives up.
//
// One thread. No failure.
#pragma once

#include <chrono>

namespace ciranda {

class Patience {
 public:
  using Clock = std::chrono::steady_clock;

  // Gives up after `limit` in which nothing moved. Crowded: there are more ranks than cores, so it yields at once.
  Patience(Clock::duration limit, bool is_crowded) : limit_(limit), is_crowded_(is_crowded) {}

  // Something moved.
  void renew() {
    n_looks_ = 0;
    last_move_ = Clock::now();
  }

  // Nothing moved: passes a moment. False when it is time to give up.
  bool look_again();

 private:
  void yield();

  Clock::duration limit_;
  bool is_crowded_;
  int n_looks_ = 0;
  int n_shared_yields_ = 0;
  Clock::time_point last_move_ = Clock::now();
};

}  // namespace ciranda
