// SleepGate: what ends the sleep of a rank's background thread: the bell at any time, and what comes by the sockets
// while nobody else runs the progress loop.
//
// To let the sockets through, and to stop it, is a system call each. A rank that makes one small call after the other
// would pay for both in every call. The sleeper then *lingers*: it looks every few milliseconds whether the calls have
// ended, and lets the sockets through itself.
//
// Threads: open(), shut(): the holder of the progress lock. sleep(): the one that sleeps, without the lock.
// Ownership: the descriptors are not owned and outlive this.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "base/status.hpp"
#include "transport/bell.hpp"
#include "transport/event_loop.hpp"

namespace ciranda {

class SleepGate {
 public:
  // `sockets`: an epoll descriptor, readable while there is something to take from it. Shut.
  static Result<std::unique_ptr<SleepGate>> create(int bell, int sockets);
  // The members are public to make_unique only: use create().
  SleepGate(EventLoop gate, Bell nudge, int sockets)
      : gate_(std::move(gate)), nudge_(std::move(nudge)), sockets_(sockets) {}

  // From now on sockets wake the sleeper; if it lingers, and that is not to be `at_once`, some milliseconds later.
  void open(bool at_once);
  void shut();
  bool lingers() const;

  // Whether something came; else the time is over, or a signal came.
  bool sleep(std::optional<std::chrono::nanoseconds> at_most);

 private:
  using Clock = std::chrono::steady_clock;

  void let_through(bool they_may);
  bool take_nudge();
  void stop_lingering_if_idle(std::uint64_t n_shuts);

  EventLoop gate_;
  Bell nudge_;  // asks the sleeper to linger
  int sockets_;
  mutable std::mutex mutex_;  // for all below
  bool lets_through_ = false;
  bool is_shut_ = true;
  bool lingers_ = false;
  bool is_nudged_ = false;
  std::uint64_t n_shuts_ = 0;
  int n_quick_ = 0;  // openings in a row that were shut again soon
  Clock::time_point last_shut_;
};

}  // namespace ciranda
