// Lane: the part that swaps (negotiate/swaps.hpp).
#include <utility>

#include "engine/lane.hpp"

namespace ciranda {

// Who waits for a small allreduce waits for messages, not for bytes.
std::span<const std::byte> Lane::small_input(const Request& request) const {
  if (!request.is_awaited || !may_swap(request.signature, mesh_.size())) return {};
  return {request.memory.front().input, request.signature.tensors.front().n_bytes()};
}

bool Lane::swap(Participant::Ticket ticket, TimePoint now) {
  const auto input = small_input(in_flight_.at(ticket).request);
  if (input.empty()) return false;
  const auto swap = participant_.swap(in_flight_.at(ticket).request, ticket);
  if (!swap) return false;
  if (swaps_.empty()) swap_probe_.begin(now);
  const SwapMessage message{swap->cache_id, swap->round, {input.begin(), input.end()}};
  in_flight_.begin(ticket);  // from here on the inputs of the others decide, or the log does
  control_.hurry();
  flush_ready(now);
  log_.tell_all(message);
  in_flight_.note(ticket, Stage::kReady);
  if (log_.above().empty()) log_.report(message, now);
  // What is refused would be our own bug, and shows as a call that is never done.
  if (Status status = swaps_.begin(message, ticket); !status.ok()) logger_.error(status.message());
  return true;
}

// For the coordinator it is a report.
Status Lane::hear_swap(int from, const SwapMessage& message, TimePoint now) {
  if (log_.expects(from, message)) {
    if (const auto heard = log_.hear(from, message, now); !heard.ok()) return heard.status();
  }
  if (Status status = swaps_.hear(from, message); !status.ok()) {
    return Status::internal(status.message() + ", from " +
                            control_.peer_text(mesh_.ranks()[static_cast<std::size_t>(from)]));
  }
  return carry_out_swaps(now);
}

Status Lane::carry_out_swaps(TimePoint now) {
  if (swaps_.empty()) return Status::ok_status();
  for (Swaps::Done& done : swaps_.take_done()) {
    Participant::Execute entry;
    entry.requests.push_back(participant_.swapped(done.cache_id));
    report_late(now);
    entry.inputs = std::move(done.inputs);
    in_flight_.note_agreed(done.ticket, Path::kSwap, in_flight_.recorder().now());
    if (Status status = data_.combine(entry); !status.ok()) return status;
    n_met_.fetch_add(1, std::memory_order_relaxed);
    const Status outcome = in_flight_.at(done.ticket).outcome;
    in_flight_.complete(done.ticket, outcome);
  }
  return Status::ok_status();
}

void Lane::report_late(TimePoint now) {
  for (const DuplicateMessage& late : participant_.take_late()) {
    control_.hurry();
    release_held(now);
    report(late, now);
  }
}

// New calls are refused. Whoever lacks this rank's input to a round knows then that it will not come.
void Lane::say_no_more_swaps() {
  if (std::exchange(has_said_no_more_swaps_, true)) return;
  control_.hurry();
  log_.tell_all(NoMoreSwapsMessage{});
}

}  // namespace ciranda
