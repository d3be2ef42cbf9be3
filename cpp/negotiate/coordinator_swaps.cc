// Coordinator: the part that hears of swaps (swaps.hpp).
//
// Of a round to which all members come by a swap it decides nothing: whoever has all inputs knows as much as it does.
// So it must not decide anything else either, as long as all may yet come so; once one will not, none will have all
// inputs, and the round is one like any other. A member that says more about the name than that it has come has seen
// the end of the round before the coordinator: that is kept for later.
#include <utility>

#include "negotiate/coordinator.hpp"

namespace ciranda {

Status Coordinator::on_swap(int rank, SwapMessage message, TimePoint now) {
  if (Status status = check_cache_id(rank, message.cache_id); !status.ok()) return status;
  Reported reported{rank, now};
  reported.swap_round = message.round;
  reported.input = std::move(message.input);
  return report(cache_ids_.name(message.cache_id), std::move(reported));
}

Status Coordinator::on_no_swap(int rank, const NoSwapMessage& message) {
  if (Status status = check_cache_id(rank, message.cache_id); !status.ok()) return status;
  Round& round = cache_ids_.name(message.cache_id).round;
  if (round.is_swap && round.swap_round == message.round && !round.has_arrived(rank)) end_hope_of_swap(round);
  return Status::ok_status();
}

// If it has been cancelled, it has waited for too long, and may fail now.
void Coordinator::end_hope_of_swap(Round& round) {
  if (std::exchange(round.is_swap, false) && round.is_cancelled) stall_check_due_ = round.opened;
}

Status Coordinator::end_swap(NamedRounds& name) {
  cache_ids_.note_use(name.cache_id);
  forgive_duplicates(name.round.n_failed_before, &name.round);
  close_round(name);
  return hear_later(name);
}

Status Coordinator::hear_later(NamedRounds& name) {
  for (Reported& reported : std::exchange(name.later, {})) {
    const int rank = reported.rank;
    if (name.round.has_swapped(rank)) {
      name.later.push_back(std::move(reported));
      continue;
    }
    const bool waits = members_.is_waiting(rank);  // as it has said since, and will not say again
    if (Status status = hear(name, std::move(reported)); !status.ok()) return status;
    if (waits) members_.waits(rank);
  }
  return Status::ok_status();
}

}  // namespace ciranda
