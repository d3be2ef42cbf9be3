// SimulatedWorld: direct rounds by messages, as Lane carries them out.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <span>

#include "agree/simulated_world.hpp"

namespace ciranda::testing {

// What is contributed tells which call it is for.
bool SimulatedWorld::send_input(Rank& rank, const Request& request) {
  if (!may_go_by_messages(request.signature, static_cast<int>(ranks_.size()),
                          options_.coordinator.limits.message_bytes))
    return false;
  const std::uint64_t ticket = rank.uses.size() - 1;
  const auto round = rank.participant.arrive(Direct::kByMessages, request, ticket);
  if (!round) return false;
  const auto bytes = std::as_bytes(std::span(&ticket, 1));
  const InputMessage message{round->op->cache_id(), round->number,
                             Payload(std::vector<std::byte>(bytes.begin(), bytes.end()))};
  tell_others(rank, message);
  if (rank.at == 0) be_heard(0, message);
  must(rank.by_messages.begin(message, ticket));
  carry_out_by_messages(rank);
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
  if (const auto* input = std::get_if<InputMessage>(&message)) {
    must(rank.by_messages.on_input(from, *input));
    return carry_out_by_messages(rank);
  }
  rank.by_messages.on_end(from);
  if (const auto* bye = std::get_if<ByeMessage>(&message)) {
    if (!rank.log_end) tell_others(rank, NoMoreInputsMessage{});
    rank.log_end = std::min<std::size_t>(rank.log_end.value_or(SIZE_MAX), bye->lanes.front().log_index);
  }
  give_up_lost_rounds(rank);
}

void SimulatedWorld::carry_out_by_messages(Rank& rank) {
  for (const SentInputs::Done& done : rank.by_messages.take_done()) {
    const Ticket own = rank.participant.rounds().done(rank.participant.names().at(done.cache_id));
    const Use& use = rank.uses.at(own);
    report_late(rank);
    if (own != done.ticket) wrong_ = "a round was taken for another";
    for (const Rank& other : ranks_) {
      std::uint64_t ticket = 0;
      std::memcpy(&ticket, done.inputs[static_cast<std::size_t>(other.at)].bytes().data(), sizeof ticket);
      const Use& theirs = other.uses.at(ticket);
      if (theirs.name != use.name || theirs.nth != use.nth || theirs.epoch != use.epoch) {
        wrong_ = "'" + use.name + "' was carried out with the input of another call";
      }
    }
    ++rank.n_direct;
    settle(rank, own, {true, kMetAt + use.nth, {}, {}});
  }
  if (rank.is_waiting && !rank.participant.calls().any()) rank.is_waiting = false;
}

void SimulatedWorld::report_late(Rank& rank) {
  for (const DuplicateMessage& late : rank.participant.calls().take_late()) report(rank, late);
}

void SimulatedWorld::give_up_lost_rounds(Rank& rank) {
  if (!rank.log_end || rank.n_applied < *rank.log_end) return;
  for (const Ticket ticket : rank.by_messages.lost()) {
    rank.by_messages.forget(ticket);
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
