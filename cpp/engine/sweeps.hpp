// Sweeps: when calls that were reported are looked through for one that will never be answered (Participant::sweep).
// Whoever lives answers within the time after which a rank that stays away fails a call. So that is the interval; and
// what moves data, or has been moving some since the last time, cannot be expected to answer.
//
// Pure; one thread.
#pragma once

#include <chrono>
#include <optional>
#include <utility>

namespace ciranda {

class Sweeps {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // 0: never.
  explicit Sweeps(std::chrono::nanoseconds interval) : interval_(interval) {}

  std::chrono::nanoseconds interval() const { return interval_; }

  // Something is pending, and nothing was.
  void begin(TimePoint now) {
    due_ = now + interval_;
    was_busy_ = false;
  }
  // Data is being moved.
  void note_busy() { was_busy_ = true; }

  // REQUIRES, here and below: something is pending. True once in an interval in which no data was moved.
  bool is_due(TimePoint now) {
    if (interval_.count() == 0 || now < due_) return false;
    due_ = now + interval_;
    return !std::exchange(was_busy_, false);
  }
  std::optional<TimePoint> due() const { return interval_.count() == 0 ? std::nullopt : std::optional(due_); }

 private:
  std::chrono::nanoseconds interval_;
  TimePoint due_;
  bool was_busy_ = false;
};

}  // namespace ciranda
