#include "engine/liveness_probe.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "base/earliest.hpp"

namespace ciranda {

LivenessProbe::LivenessProbe(std::vector<Watched> peers, const StallLimits& limits, ControlPlane& control,
                             const Logger& logger)
    : peers_(std::move(peers)), limits_(limits), control_(control), logger_(logger) {}

Status LivenessProbe::look(TimePoint now) {
  for (Watched& watched : peers_) {
    if (Status status = look_at(watched, now); !status.ok()) return status;
  }
  return Status::ok_status();
}

Status LivenessProbe::look_at(Watched& watched, TimePoint now) {
  if (limits_.interval().count() == 0 || now < due(watched)) return Status::ok_status();
  if (!is_asked(watched)) {
    watched.asked = now;
    control_.ask(watched.rank);
    return Status::ok_status();
  }
  const auto silence = now - last_message(watched);
  const auto waited = std::chrono::duration_cast<std::chrono::seconds>(silence).count();
  const std::string text = control_.peer_text(watched.rank) + ", " + watched.role + ", has not answered for " +
                           std::to_string(waited) + " s: it is stopped, or cut off.";
  if (limits_.shutdown.count() > 0 && silence >= limits_.shutdown) return Status::timeout(text);
  if (limits_.warning.count() > 0) logger_.warning(text);
  watched.reported = now;
  return Status::ok_status();
}

// When to ask, half an interval before the next report; or when to report, at least half an interval after asking.
TimePoint LivenessProbe::due(const Watched& watched) const {
  const auto interval = limits_.interval();
  const TimePoint since = std::max(last_message(watched), watched.reported);
  TimePoint report = since + interval;
  if (limits_.shutdown.count() > 0) report = std::min(report, last_message(watched) + limits_.shutdown);
  if (!is_asked(watched)) return std::max(since, report - interval / 2);
  return std::max(report, watched.asked + interval / 2);
}

std::optional<TimePoint> LivenessProbe::due() const {
  std::optional<TimePoint> next;
  if (limits_.interval().count() == 0) return next;
  for (const Watched& watched : peers_) next = earliest(next, due(watched));
  return next;
}

}  // namespace ciranda
