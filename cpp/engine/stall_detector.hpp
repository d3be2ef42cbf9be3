// StallDetector: whether what all ranks have begun to carry out still moves. Where it does not, a peer was stopped, or
// a link is cut, in the middle of the data. Whom this rank waits for may itself wait for that peer: so it asks them,
// and those who answer are not to blame. Somebody who waits for the one that does not answer will tell all.
//
// One thread (the holder of the progress lock).
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

  // Something has moved, or there is nothing to.
  void moved() {
    stuck_since_.reset();
    asked_.reset();
  }
  // Nothing has. `what` names what is carried out, `awaited` gives whom it waits for, ranks of the world. Not ok: for
  // too long; for twice as long, where all of them answer.
  Status stuck(TimePoint now, const std::function<std::string()>& what,
               const std::function<std::vector<int>()>& awaited);
  std::optional<TimePoint> due() const;

 private:
  Status report(TimePoint now, const std::string& what, const std::vector<int>& awaited);

  StallLimits limits_;
  ControlPlane& control_;
  const Logger& logger_;
  std::optional<TimePoint> stuck_since_;
  std::optional<TimePoint> asked_;  // since the last report; half an interval before the next
  TimePoint next_;                  // to ask, or to report
};

}  // namespace ciranda
