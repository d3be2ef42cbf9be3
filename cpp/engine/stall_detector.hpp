// StallDetector: detects that an entry in execution no longer moves, because a peer has stopped or a link is cut. The
// peers that this rank waits for may themselves wait for the stopped one. So this rank probes them; a peer that answers
// is not the cause. A rank that waits for the stopped peer directly reports it to all.
//
// Called by Lane; one thread (the holder of the progress lock).
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "engine/control_plane.hpp"
#include "engine/liveness_probe.hpp"

namespace ciranda {

class StallDetector {
 public:
  // The control plane and the logger outlive this.
  StallDetector(const StallLimits& limits, ControlPlane& control, const Logger& logger);

  // Something has moved, or there is nothing to execute.
  void moved() {
    stuck_since_.reset();
    asked_.reset();
  }
  // Nothing has moved. `what` describes the entry in execution; `awaited` returns the ranks (of the world) that it
  // waits for. Returns Timeout if nothing has moved for the stall limit, or for twice as long if all of them answer.
  Status stuck(TimePoint now, const std::function<std::string()>& what,
               const std::function<std::vector<int>()>& awaited);
  std::optional<TimePoint> due() const;

 private:
  Status report(TimePoint now, const std::string& what, const std::vector<int>& awaited);

  StallLimits limits_;
  ControlPlane& control_;
  const Logger& logger_;
  std::optional<TimePoint> stuck_since_;
  std::optional<TimePoint> asked_;  // when it probed since the last report; half an interval before the next report
  TimePoint next_;                  // when to probe or to report next
};

}  // namespace ciranda
