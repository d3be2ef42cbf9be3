// WireWatch: whether what all ranks have begun to carry out still moves. Where it does not, a peer was stopped, or a
// link is cut, in the middle of the data.
//
// One thread (the holder of the progress token).
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "base/log.hpp"
#include "engine/peer_watch.hpp"

namespace ciranda {

class WireWatch {
 public:
  // The logger outlives this.
  WireWatch(const PeerWatch::Limits& limits, const Logger& logger);

  // Something has moved, or there is nothing to.
  void moved() { stuck_since_.reset(); }
  // Nothing has. `what` names what is carried out, `awaited` whom it waits for. Not ok: for too long.
  Status stuck(TimePoint now, const std::function<std::string()>& what, const std::function<std::string()>& awaited);
  std::optional<TimePoint> due() const;

 private:
  PeerWatch::Limits limits_;
  std::chrono::nanoseconds interval_;  // between reports; 0: none
  const Logger& logger_;
  std::optional<TimePoint> stuck_since_;
  TimePoint next_report_;
};

}  // namespace ciranda
