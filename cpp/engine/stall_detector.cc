#include "engine/stall_detector.hpp"

#include <algorithm>

namespace ciranda {

StallDetector::StallDetector(const StallLimits& limits, ControlPlane& control, const Logger& logger, Counters& counters)
    : limits_(limits), control_(control), logger_(logger), counters_(counters) {}

Status StallDetector::stuck(TimePoint now, const std::function<Stuck()>& describe) {
  if (limits_.interval().count() == 0) return Status::ok_status();
  if (!stuck_since_) {
    stuck_since_ = now;
    next_ = now + limits_.interval() / 2;
  }
  if (now < next_) return Status::ok_status();
  next_ = now + limits_.interval() / 2;
  if (asked_) return report(now, describe());
  asked_ = now;
  for (const int rank : describe().awaited) control_.ask(rank);
  return Status::ok_status();
}

Status StallDetector::report(TimePoint now, const Stuck& stuck) {
  const TimePoint asked = *asked_;
  asked_.reset();
  const bool awaits_device = !stuck.device.empty() && !stuck.has_come;
  const auto answers = [&](int rank) { return control_.last_message_from(rank) > asked; };
  const bool do_all_answer = std::all_of(stuck.awaited.begin(), stuck.awaited.end(), answers);
  const auto waited = now - *stuck_since_;
  std::string text = stuck.what + " began on all ranks but has not moved for " +
                     std::to_string(std::chrono::duration_cast<std::chrono::seconds>(waited).count()) + " s. ";
  if (stuck.has_come) {
    text += "This rank has come to it " + stuck.device + ": it waits for the device of another rank.";
  } else if (!stuck.device.empty()) {
    text += "Waiting for the tensors of " + control_.own_text() + " " + stuck.device +
            ": the work that was queued there before the call has not ended.";
  } else {
    text += "Waiting for";
    for (const int rank : stuck.awaited) {
      if (do_all_answer || !answers(rank)) text += " " + control_.peer_text(rank);
    }
    text += do_all_answer ? ", which may wait for its device, or for another that is stopped or cut off."
                          : ": stopped, or its link is cut.";
  }
  const auto most = do_all_answer && !awaits_device ? 2 * limits_.shutdown : limits_.shutdown;
  if (limits_.shutdown.count() > 0 && waited >= most) return Status::timeout(text);
  if (limits_.warning.count() == 0) return Status::ok_status();
  counters_.count_stall();
  logger_.warning(text);
  return Status::ok_status();
}

std::optional<TimePoint> StallDetector::due() const {
  if (!stuck_since_) return std::nullopt;
  return next_;
}

}  // namespace ciranda
