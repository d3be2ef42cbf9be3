// LivenessProbe: whether those live whom a rank waits for without the coordinator's help: those through whom it gets
// the log, or whose inputs to direct rounds it lacks. One that is stopped cannot report itself, nor can the coordinator
// report a relay to those who hear of nothing but through it. So whoever has waited for long asks each.
//
// One thread (the holder of the progress lock).
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "agree/coordinator_options.hpp"
#include "base/log.hpp"
#include "engine/control_plane.hpp"

namespace ciranda {

class LivenessProbe {
 public:
  struct Watched {
    int rank;          // of the world
    std::string role;  // as a message says it: "which coordinates"
    TimePoint asked{};
  };

  // The control plane and the logger outlive this.
  LivenessProbe(std::vector<Watched> peers, const StallLimits& limits, ControlPlane& control, const Logger& logger);

  // There is a question now, and there was none: silence counts from here.
  void begin(TimePoint now) { began_ = now; }
  // REQUIRES, here and below: there is a question. Not ok: one of them has been silent for too long.
  Status look(TimePoint now);
  std::optional<TimePoint> due() const;

 private:
  Status look_at(Watched& watched, TimePoint now);
  TimePoint heard(const Watched& watched) const { return std::max(began_, control_.heard_from(watched.rank)); }

  std::vector<Watched> peers_;
  StallLimits limits_;
  ControlPlane& control_;
  const Logger& logger_;
  TimePoint began_;
};

}  // namespace ciranda
