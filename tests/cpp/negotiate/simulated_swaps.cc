// SimulatedWorld: swaps, as Lane carries them out.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <span>

#include "negotiate/simulated_world.hpp"

namespace ciranda::testing {

// What is contributed tells which call it is for.
bool SimulatedWorld::swap(Rank& rank, const Request& request) {
  if (!may_swap(request.signature, static_cast<int>(ranks_.size()))) return false;
  const std::uint64_t ticket = rank.uses.size() - 1;
  const auto swap = rank.participant.swap(request, ticket);
  if (!swap) return false;
  const auto bytes = std::as_bytes(std::span(&ticket, 1));
  const SwapMessage message{swap->cache_id, swap->round, {bytes.begin(), bytes.end()}};
  tell_others(rank, message);
  if (rank.at == 0) be_heard(0, message);
  must(rank.swaps.begin(message, ticket));
  carry_out_swaps(rank);
  return true;
}

void SimulatedWorld::tell_others(Rank& rank, const Message& message) {
  for (Rank& other : ranks_) {
    if (other.at == rank.at) continue;
    if (other.at == 0) {
      rank.reported.push_back(message);
    } else {
      other.incoming[rank.at].push_back(message);
    }
  }
}

void SimulatedWorld::hear(Rank& rank, int from, const Message& message) {
  if (const auto* swap = std::get_if<SwapMessage>(&message)) {
    must(rank.swaps.hear(from, *swap));
    return carry_out_swaps(rank);
  }
  rank.swaps.hear_end(from);
  if (const auto* bye = std::get_if<ByeMessage>(&message)) {
    if (!rank.log_end) tell_others(rank, NoMoreSwapsMessage{});
    rank.log_end = std::min<std::size_t>(rank.log_end.value_or(SIZE_MAX), bye->lanes.front().log_index);
  }
  give_up_lost_swaps(rank);
}

void SimulatedWorld::carry_out_swaps(Rank& rank) {
  for (const Swaps::Done& done : rank.swaps.take_done()) {
    const Participant::Ready ready = rank.participant.swapped(done.cache_id);
    const Use& use = rank.uses.at(ready.ticket);
    report_late(rank);
    if (ready.ticket != done.ticket) wrong_ = "a swap was taken for another";
    for (const Rank& other : ranks_) {
      std::uint64_t ticket = 0;
      std::memcpy(&ticket, done.inputs.data() + other.at * sizeof ticket, sizeof ticket);
      const Use& theirs = other.uses.at(ticket);
      if (theirs.name != use.name || theirs.nth != use.nth || theirs.epoch != use.epoch) {
        wrong_ = "'" + use.name + "' was carried out with the input of another call";
      }
    }
    ++rank.n_met;
    settle(rank, ready.ticket, {true, kMetAt + use.nth, {}, {}});
  }
  if (rank.is_waiting && !rank.participant.has_pending()) rank.is_waiting = false;
}

void SimulatedWorld::report_late(Rank& rank) {
  for (const DuplicateMessage& late : rank.participant.take_late()) report(rank, late);
}

void SimulatedWorld::give_up_lost_swaps(Rank& rank) {
  if (!rank.log_end || rank.n_applied < *rank.log_end) return;
  for (const Participant::Ticket ticket : rank.swaps.lost()) {
    rank.swaps.forget(ticket);
    settle(rank, ticket, {false, log_.size(), Status::aborted("a rank has left"), {}});
  }
}

void SimulatedWorld::stall() {
  ++n_stalls_;
  (void)coordinator_.check_stalls(TimePoint{} + std::chrono::hours(1));
  has_news_ = true;
  if (options_.takes_eagerly) take(true);
}

}  // namespace ciranda::testing
