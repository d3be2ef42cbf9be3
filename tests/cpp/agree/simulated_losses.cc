// SimulatedWorld: a message that is lost, and the time that then must bring an end to all that waits.
#include <algorithm>

#include "agree/simulated_world.hpp"

namespace ciranda::testing {

// Not what a rank says to itself.
bool SimulatedWorld::is_message(const Event& event) const {
  switch (event.kind) {
    case Event::Kind::kHear: return true;
    case Event::Kind::kApply: return event.rank != 0;
    case Event::Kind::kDeliver: return event.rank != (tree_ ? tree_->relay_of(event.rank) : 0);
    case Event::Kind::kPassOn:
    case Event::Kind::kPassLog: return tree_->parent(event.rank) >= 0;
    default: return false;
  }
}

void SimulatedWorld::lose(const Event& event) {
  Rank& rank = ranks_[static_cast<std::size_t>(event.rank)];
  switch (event.kind) {
    case Event::Kind::kHear: return rank.incoming[static_cast<std::size_t>(event.from)].pop_front();
    case Event::Kind::kDeliver: return rank.reported.pop_front();
    case Event::Kind::kPassOn: return static_cast<void>(rank.relay->take());
    case Event::Kind::kPassLog: rank.lost.insert(rank.n_passed_down++); [[fallthrough]];
    default: ++rank.n_applied;
  }
}

// Whether no relay on the way has missed it.
bool SimulatedWorld::has_come_down(const Rank& rank, std::size_t entry) const {
  if (!tree_) return true;
  for (int relay = tree_->relay_of(static_cast<int>(rank.at)); relay >= 0; relay = tree_->parent(relay)) {
    if (ranks_[static_cast<std::size_t>(relay)].lost.contains(entry)) return false;
  }
  return true;
}

void SimulatedWorld::let_time_pass() {
  constexpr int kMostRounds = 100;  // of as much time as the coordinator has patience, more than any script needs
  for (int i = 0; i < kMostRounds && broken().empty() && !unended().empty(); ++i) {
    if (coordinator_.next_stall_check() && !has_left(0)) stall();
    for (Rank& rank : ranks_) {
      if (rank.has_left) continue;
      if (const auto again = rank.participant.calls().join_again()) report(rank, *again);
      const auto overdue = rank.participant.calls().sweep(true);
      if (overdue) must(Status::timeout(*overdue + " of rank " + std::to_string(rank.at) + " was never answered"));
    }
    begin_with(SIZE_MAX);
  }
}

std::string SimulatedWorld::unended() const {
  if (!broken_.empty()) return {};
  std::size_t n_joins = SIZE_MAX;
  for (const Rank& rank : ranks_) n_joins = std::min(n_joins, rank.n_joins);
  for (const Rank& rank : ranks_) {
    if (rank.has_left) continue;
    const std::string whose = " of rank " + std::to_string(rank.at) + " has no end";
    if (rank.joined_last.size() < n_joins) return "a join" + whose;
    for (const Use& use : rank.uses) {
      if (!use.outcome) return "use " + std::to_string(use.nth) + " of '" + use.name + "'" + whose;
    }
  }
  return {};
}

}  // namespace ciranda::testing
