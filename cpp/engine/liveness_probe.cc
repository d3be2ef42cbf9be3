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
  const auto interval = limits_.interval();
  if (interval.count() == 0) return Status::ok_status();
  const TimePoint last_message = this->last_message(watched);
  const auto silence = now - last_message;
  if (silence < interval || now - watched.asked < interval) return Status::ok_status();
  if (watched.asked > last_message) {
    const auto waited = std::chrono::duration_cast<std::chrono::seconds>(silence).count();
    const std::string text = control_.peer_text(watched.rank) + ", " + watched.role + ", has not answered for " +
                             std::to_string(waited) + " s: it is stopped, or cut off.";
    if (limits_.shutdown.count() > 0 && silence >= limits_.shutdown) return Status::timeout(text);
    if (limits_.warning.count() > 0) logger_.warning(text);
  }
  watched.asked = now;
  control_.ask(watched.rank);
  return Status::ok_status();
}

std::optional<TimePoint> LivenessProbe::due() const {
  std::optional<TimePoint> next;
  const auto interval = limits_.interval();
  if (interval.count() == 0) return next;
  for (const Watched& watched : peers_)
    next = earliest(next, std::max(last_message(watched), watched.asked) + interval);
  return next;
}

}  // namespace ciranda
