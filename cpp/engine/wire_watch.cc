#include "engine/wire_watch.hpp"

namespace ciranda {

WireWatch::WireWatch(const PeerWatch::Limits& limits, const Logger& logger)
    : limits_(limits), interval_(limits.warning.count() > 0 ? limits.warning : limits.shutdown), logger_(logger) {}

Status WireWatch::stuck(TimePoint now, const std::function<std::string()>& what,
                        const std::function<std::string()>& awaited) {
  if (interval_.count() == 0) return Status::ok_status();
  if (!stuck_since_) {
    stuck_since_ = now;
    next_report_ = now + interval_;
  }
  if (now < next_report_) return Status::ok_status();
  next_report_ = now + interval_;
  const auto waited = now - *stuck_since_;
  const std::string text = what() + " began on all ranks but has not moved for " +
                           std::to_string(std::chrono::duration_cast<std::chrono::seconds>(waited).count()) +
                           " s. Waiting for" + awaited() + ": stopped, or its link is cut.";
  if (limits_.shutdown.count() > 0 && waited >= limits_.shutdown) return Status::timeout(text);
  if (limits_.warning.count() > 0) logger_.warning(text);
  return Status::ok_status();
}

std::optional<TimePoint> WireWatch::due() const {
  if (!stuck_since_) return std::nullopt;
  return next_report_;
}

}  // namespace ciranda
