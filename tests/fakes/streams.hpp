// The handles of streams and events that a program has.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "captures.hpp"
#include "handles.hpp"
#include "stream.hpp"
#include "types.hpp"

namespace ciranda::fakes {

// Threads: any.
class Event {
 public:
  explicit Event(CUdevice device) : device_(device) {}

  void record(Point point) {
    const std::lock_guard lock(mutex_);
    recorded_ = std::move(point);
    captured_.reset();
  }
  // In a stream whose work is captured: it stands for no work that is done now.
  void capture(Captures::Moment moment) {
    const std::lock_guard lock(mutex_);
    captured_ = std::move(moment);
  }
  // Nothing: where it was recorded last was not captured.
  std::optional<Captures::Moment> captured() const {
    const std::lock_guard lock(mutex_);
    return captured_;
  }
  // Where it was recorded last; nothing: never.
  std::optional<Point> recorded() const {
    const std::lock_guard lock(mutex_);
    return recorded_;
  }
  CUdevice device() const { return device_; }

 private:
  const CUdevice device_;
  mutable std::mutex mutex_;
  std::optional<Point> recorded_;
  std::optional<Captures::Moment> captured_;
};

// Those of the process, which outlive the threads of the streams.
inline Handles<CUstream, Stream>& streams() {
  static auto* const kept = new Handles<CUstream, Stream>;
  return *kept;
}

inline Handles<CUevent, Event>& events() {
  static auto* const kept = new Handles<CUevent, Event>;
  return *kept;
}

}  // namespace ciranda::fakes
