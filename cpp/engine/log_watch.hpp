// LogWatch: whether those through whom a rank gets a log still live. One that is stopped cannot report itself, nor can
// the coordinator report a relay to those who hear of nothing but through it. So whoever has waited for long asks each.
//
// One thread (the holder of the progress token).
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "engine/control_plane.hpp"

namespace ciranda {

class LogWatch {
 public:
  struct Limits {
    std::chrono::nanoseconds warning;   // 0: never
    std::chrono::nanoseconds shutdown;  // 0: never
  };

  // `above`: ranks of the world; the last is the coordinator. The control plane and the logger outlive this.
  LogWatch(const std::vector<int>& above, const Limits& limits, ControlPlane& control, const Logger& logger);

  // There is a question now, and there was none: silence counts from here.
  void begin(TimePoint now) { began_ = now; }
  // REQUIRES, here and below: there is a question. Not ok: one of them has been silent for too long.
  Status look(TimePoint now);
  std::optional<TimePoint> due() const;

 private:
  struct Watched {
    int rank;
    TimePoint asked;
  };
  Status look_at(Watched& watched, TimePoint now);
  TimePoint heard(const Watched& watched) const { return std::max(began_, control_.heard_from(watched.rank)); }

  std::vector<Watched> above_;
  Limits limits_;
  ControlPlane& control_;
  const Logger& logger_;
  TimePoint began_;
};

}  // namespace ciranda
