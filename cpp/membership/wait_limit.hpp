// WaitLimit: ends a wait for other processes: at a deadline, or sooner if the caller interrupts it, as after Ctrl-C.
//
// Called by StoreClient, PairConnector, join_world(), probe_shared_memory() and blocking_io.hpp; the waiting thread
// calls `interrupted`. Copyable; converts from a time alone.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

#include "base/status.hpp"

namespace ciranda {

struct WaitLimit {
  using Clock = std::chrono::steady_clock;
  // True: give up. It is polled several times a second, so it needs no notification.
  using Interrupted = std::function<bool()>;

  Clock::time_point deadline;
  Interrupted interrupted;  // may be empty

  WaitLimit() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a time alone is a limit
  WaitLimit(Clock::time_point until, Interrupted asked = {}) : deadline(until), interrupted(std::move(asked)) {}

  bool is_reached() const { return Clock::now() >= deadline; }
  // Aborted if the caller gives up, else OK.
  Status check() const {
    return interrupted && interrupted() ? Status::aborted("it was interrupted while it waited") : Status{};
  }
  WaitLimit longer_by(Clock::duration time) const { return {deadline + time, interrupted}; }
  std::chrono::milliseconds left() const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    return std::max(left, std::chrono::milliseconds(0));
  }
  // How long one system call may wait: until the deadline, but no longer than until the next poll of `interrupted`.
  int slice_ms() const { return slice_ms(deadline); }
  int slice_ms(Clock::time_point until) const {
    constexpr std::int64_t kBetweenQuestions = 100;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(std::min(until, deadline) - Clock::now()).count();
    return static_cast<int>(std::clamp<std::int64_t>(left, 0, interrupted ? kBetweenQuestions : 1 << 30));
  }
};

}  // namespace ciranda
