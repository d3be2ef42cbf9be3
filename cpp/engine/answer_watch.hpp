// AnswerWatch: whether what this rank has reported, and is pending, will be answered: whether those live through whom
// the log comes, and whether a report or its answer was lost. Whoever lives answers within the time after which a rank
// that stays away fails a call. So calls are looked through at that interval (PendingCalls::sweep); and what moves
// data, or has been moving some since the last time, cannot be expected to answer.
//
// One thread (the holder of the progress lock).
#pragma once

#include <optional>

#include "engine/lane_parts.hpp"
#include "engine/liveness_probe.hpp"

namespace ciranda {

class AnswerWatch {
 public:
  // The logger outlives this.
  AnswerWatch(const LaneParts& lane, const StallLimits& limits, const Logger& logger);

  // Something is pending, and nothing was.
  void begin(TimePoint now);
  // Data is being moved.
  void note_busy() { was_busy_ = true; }
  // Not ok: there will be no answer.
  Status look(TimePoint now);
  std::optional<TimePoint> due() const;

 private:
  Status sweep(TimePoint now);

  const LaneParts lane_;
  LivenessProbe probe_;
  std::chrono::nanoseconds interval_;  // 0: never
  TimePoint next_sweep_;
  bool was_busy_ = false;
};

}  // namespace ciranda
