#include "agree/turns.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace ciranda {

std::vector<TurnMessage> Turns::take_asked() { return std::exchange(asked_, {}); }

void Turns::give(LaneId lane, std::uint64_t log_index) {
  const auto found = ends_.find(lane);
  if (found != ends_.end() && log_index < found->second) order_.push_back({lane, log_index});
}

LaneTurns::LaneTurns(Turns& turns, LaneId lane) : turns_(turns), lane_(lane) {
  turns_.ends_.emplace(lane, std::numeric_limits<std::uint64_t>::max());
}

LaneTurns::~LaneTurns() {
  give_up_from(0);
  turns_.ends_.erase(lane_);
}

Turns::State LaneTurns::of(std::uint64_t log_index) const {
  const auto found = std::ranges::find(turns_.order_, Turns::Turn{lane_, log_index});
  if (found == turns_.order_.end()) return turns_.is_closed_ ? Turns::State::kNever : Turns::State::kAwaited;
  return found == turns_.order_.begin() ? Turns::State::kHere : Turns::State::kGiven;
}

void LaneTurns::end(std::uint64_t log_index) { std::erase(turns_.order_, Turns::Turn{lane_, log_index}); }

void LaneTurns::give_up_from(std::uint64_t log_index) {
  std::uint64_t& end = turns_.ends_.at(lane_);
  end = std::min(end, log_index);
  std::erase_if(turns_.order_,
                [&](const Turns::Turn& turn) { return turn.lane == lane_ && turn.log_index >= log_index; });
}

}  // namespace ciranda
