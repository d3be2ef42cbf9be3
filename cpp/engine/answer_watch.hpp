// AnswerWatch: checks that this rank's pending reports can still be answered: that the coordinator and the relays above
// this rank are alive, and that no report or answer was lost. A live coordinator answers within the time after which a
// missing rank fails a call, so pending calls are checked at that interval (PendingCalls::sweep). The check is skipped
// if the lane has moved data since the last one: an answer cannot be expected then.
//
// Called by Lane; one thread (the holder of the progress lock).
#pragma once

#include <optional>

#include "base/thread_annotations.hpp"
#include "engine/lane_parts.hpp"
#include "engine/liveness_probe.hpp"

namespace ciranda {

class AnswerWatch {
 public:
  // The logger outlives this.
  AnswerWatch(const LaneParts& lane, const StallLimits& limits, const Logger& logger);

  // The first call becomes pending.
  void begin(TimePoint now);
  // The lane is moving data.
  void note_busy() { was_busy_ = true; }
  // Returns an error if there will be no answer.
  Status look(TimePoint now) REQUIRES(progress_lock);
  std::optional<TimePoint> due() const;

 private:
  Status sweep(TimePoint now) REQUIRES(progress_lock);

  const LaneParts lane_;
  LivenessProbe probe_;
  std::chrono::nanoseconds interval_;  // 0: never
  TimePoint next_sweep_;
  bool was_busy_ = false;
};

}  // namespace ciranda
