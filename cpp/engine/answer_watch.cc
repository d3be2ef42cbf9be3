#include "engine/answer_watch.hpp"

#include <string>
#include <utility>
#include <vector>

#include "agree/process_sets.hpp"
#include "base/earliest.hpp"

namespace ciranda {
namespace {

std::vector<LivenessProbe::Watched> ranks_above(const LaneLog& log, const LaneMesh& mesh) {
  std::vector<LivenessProbe::Watched> ranks;
  for (const int member : log.above()) {
    const bool coordinates = member == log.above().back();
    ranks.push_back({mesh.peer(member).rank, coordinates ? "which coordinates" : "through which the log comes"});
  }
  return ranks;
}

}  // namespace

AnswerWatch::AnswerWatch(const LaneParts& lane, const StallLimits& limits, const Logger& logger)
    : lane_(lane), probe_(ranks_above(lane.log, lane.mesh), limits, lane.control, logger), interval_(limits.shutdown) {}

void AnswerWatch::begin(TimePoint now) {
  probe_.begin(now);
  next_sweep_ = now + interval_;
  was_busy_ = false;
}

Status AnswerWatch::look(TimePoint now) {
  if (!lane_.participant.calls().any()) return Status::ok_status();
  if (Status status = probe_.look(now); !status.ok()) return status;
  if (interval_.count() == 0 || now < next_sweep_) return Status::ok_status();
  next_sweep_ = now + interval_;
  return std::exchange(was_busy_, false) ? Status::ok_status() : sweep(now);
}

Status AnswerWatch::sweep(TimePoint now) {
  if (const auto again = lane_.participant.calls().join_again()) lane_.reports.send(*again, now);
  const auto overdue = lane_.participant.calls().sweep(lane_.reports.is_waiting());
  if (!overdue) return Status::ok_status();
  const std::string formed = needs_no_agreement(lane_.id) ? ", or that rank has not formed the group" : "";
  return Status::timeout("'" + *overdue + "' has waited on rank " +
                         std::to_string(lane_.mesh.peer(lane_.mesh.rank()).rank) + " for more than " +
                         seconds_text(2 * interval_) + " without an answer of " +
                         lane_.control.peer_text(lane_.mesh.ranks().front()) +
                         ", which coordinates and is alive: a message between them was lost" + formed + ".");
}

std::optional<TimePoint> AnswerWatch::due() const {
  if (!lane_.participant.calls().any()) return std::nullopt;
  return earliest(probe_.due(), interval_.count() == 0 ? std::nullopt : std::optional(next_sweep_));
}

}  // namespace ciranda
