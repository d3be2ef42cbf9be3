// SimulatedWorld: ranks that say that they stand, and whether a standstill is one.
#include <algorithm>
#include <optional>
#include <string>

#include "agree/simulated_world.hpp"

namespace ciranda::testing {

// As Lane does.
std::optional<StandingMessage> SimulatedWorld::standing(const Rank& rank) const {
  const bool is_over = rank.has_left || rank.has_ended || rank.log_end.has_value();
  if (!options_.tells_standing || is_over || !rank.is_waiting || !rank.rounds.empty()) return std::nullopt;
  if (rank.participant.calls().has_joined()) return std::nullopt;
  const auto is_pending = [](const Use& use) { return !use.outcome; };
  const auto n_pending = std::count_if(rank.uses.begin(), rank.uses.end(), is_pending);
  return StandingMessage{rank.n_applied, static_cast<std::uint32_t>(n_pending)};
}

void SimulatedWorld::stand(Rank& rank) {
  rank.said = *standing(rank);
  report(rank, rank.said);
}

// Then nothing is on its way, and no rank has anything to do. What was told before is told again to those who owe it.
void SimulatedWorld::judge_standstill(const LogMessage& written) {
  bool is_news = false;
  for (const LogEntry& entry : written.entries) {
    const auto* failure = std::get_if<FailEntry>(&entry);
    const bool tells = failure != nullptr && failure->text.find("ranks wait for each other") != std::string::npos;
    is_news |= tells && told_.insert(failure->text).second;
  }
  if (!is_news) return;
  ++n_standstills_;
  for (const Rank& rank : ranks_) {
    if (rank.participant.calls().has_joined()) continue;
    const bool is_heard =
        rank.reported.empty() && (!rank.relay || !rank.relay->has_news()) &&
        std::all_of(rank.incoming.begin(), rank.incoming.end(), [](const auto& m) { return m.empty(); });
    if (!standing(rank) || !is_heard || rank.n_applied != log_.size()) {
      wrong_ = "rank " + std::to_string(rank.at) + " was to go on, and was told that all stand";
    }
  }
}

bool SimulatedWorld::is_at_standstill() const {
  if (!options_.tells_standing) return false;
  bool does_any_wait = false;
  for (const Rank& rank : ranks_) {
    if (rank.participant.calls().has_joined()) continue;
    if (!standing(rank)) return false;
    does_any_wait = true;
  }
  return does_any_wait;
}

}  // namespace ciranda::testing
