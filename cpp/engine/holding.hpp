// Holding: decides how long reports are held back to be sent together: until nothing has been added for one window, and
// for 20 windows at most. Called by LaneLog and Reports; pure.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

namespace ciranda {

class Holding {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit Holding(std::chrono::nanoseconds window) : window_(window) {}

  // `holds_any`: something is held now. `has_progress`: something was added.
  void update(bool holds_any, bool has_progress, TimePoint now) {
    if (!holds_any) {
      due_.reset();
      return;
    }
    if (!due_) began_ = now;
    if (!due_ || has_progress) due_ = std::min(now + window_, began_ + kMostWindows * window_);
  }
  bool is_over(TimePoint now) const { return due_ && now >= *due_; }
  std::optional<TimePoint> due() const { return due_; }

 private:
  static constexpr int kMostWindows = 20;

  std::chrono::nanoseconds window_;
  TimePoint began_;
  std::optional<TimePoint> due_;
};

}  // namespace ciranda
