// LivenessProbe: checks that certain ranks are alive: those through which this rank gets the log, or those whose inputs
// to direct rounds it lacks. The coordinator cannot report these: it may itself be the stopped rank, or be reachable
// only through a stopped relay. So a rank that has waited for long sends each of them a probe.
//
// Called by AnswerWatch and RoundsByMessages; one thread (the holder of the progress lock).
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
    int rank;              // of the world
    std::string role;      // for error messages: "which coordinates"
    TimePoint asked{};     // half an interval before the next report
    TimePoint reported{};  // the last time
  };

  // The control plane and the logger outlive this.
  LivenessProbe(std::vector<Watched> peers, const StallLimits& limits, ControlPlane& control, const Logger& logger);

  // This rank begins to wait for the watched ranks. Their silence is measured from now on.
  void begin(TimePoint now) { began_ = now; }
  // Returns Timeout if a watched rank has been silent for too long. REQUIRES, here and below: this rank waits for them.
  Status look(TimePoint now);
  std::optional<TimePoint> due() const;

 private:
  Status look_at(Watched& watched, TimePoint now);
  TimePoint due(const Watched& watched) const;
  bool is_asked(const Watched& watched) const {
    return watched.asked > last_message(watched) && watched.asked >= watched.reported;
  }
  TimePoint last_message(const Watched& watched) const {
    return std::max(began_, control_.last_message_from(watched.rank));
  }

  std::vector<Watched> peers_;
  StallLimits limits_;
  ControlPlane& control_;
  const Logger& logger_;
  TimePoint began_;
};

}  // namespace ciranda
