// SleepGate: decides which events wake a rank's background thread: its bell always, socket events only while no other
// thread runs the progress loop.
//
// Enabling socket events, and disabling them, costs a system call each. A rank that makes small calls in quick
// succession would pay for both in every call. During such calls the sleeper *lingers*: it checks every few
// milliseconds whether the calls have ended, and enables socket events itself.
//
// Called by SocketMesh. Threads: create(): the one that joins the world. open(), shut(): the holder of the progress
// lock. sleep(): the sleeping thread, without the lock. Ownership: the descriptors are not owned and outlive this
// object.
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
  // `sockets`: an epoll descriptor, readable while socket events are pending. The gate is shut at first.
  static Result<std::unique_ptr<SleepGate>> create(int bell, int sockets);
  // The members are public to make_unique only: use create().
  SleepGate(EventLoop gate, Bell nudge, int sockets)
      : gate_(std::move(gate)), nudge_(std::move(nudge)), sockets_(sockets) {}

  // From now on socket events wake the sleeper; but some milliseconds later if it lingers, unless `at_once`.
  void open(bool at_once);
  void shut();
  bool lingers() const;

  // True: an event woke the thread. False: the time is over, or a signal arrived.
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
  int n_quick_ = 0;  // consecutive shuts, each soon after the one before
  Clock::time_point last_shut_;
};

}  // namespace ciranda
