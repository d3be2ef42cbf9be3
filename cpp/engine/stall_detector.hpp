// StallDetector: detects that an entry in execution no longer moves, because a peer has stopped, a link is cut, or a
// device of this rank has not reached the call. The peers that this rank waits for may themselves wait for the stopped
// one, or for their device. So this rank probes them; a peer that answers is not the cause, and is not named if another
// does not. A rank that waits for the stopped peer or for its device directly reports it to all.
//
// Called by Lane; one thread (the holder of the progress lock).
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agree/coordinator_options.hpp"
#include "base/log.hpp"
#include "engine/control_plane.hpp"
#include "observe/counters.hpp"

namespace ciranda {

class StallDetector {
 public:
  // All arguments but the limits outlive this.
  StallDetector(const StallLimits& limits, ControlPlane& control, const Logger& logger, Counters& counters);

  // Something has moved, or there is nothing to execute.
  void moved() {
    stuck_since_.reset();
    asked_.reset();
  }
  struct Stuck {
    std::string what;          // the entry in execution
    std::vector<int> awaited;  // the ranks (of the world) that it waits for
    std::string device;        // the device of this rank that it waits for; empty if none
    bool has_come = false;     // that device to the entry: it waits for the devices of other ranks there
  };
  // Nothing has moved. Returns Timeout if nothing has moved for the stall limit, or for twice as long if all awaited
  // ranks answer, or this rank's device waits for those of others.
  Status stuck(TimePoint now, const std::function<Stuck()>& describe);
  std::optional<TimePoint> due() const;

 private:
  Status report(TimePoint now, const Stuck& stuck);

  StallLimits limits_;
  ControlPlane& control_;
  const Logger& logger_;
  Counters& counters_;
  std::optional<TimePoint> stuck_since_;
  std::optional<TimePoint> asked_;  // when it probed since the last report; half an interval before the next report
  TimePoint next_;                  // when to probe or to report next
};

}  // namespace ciranda
