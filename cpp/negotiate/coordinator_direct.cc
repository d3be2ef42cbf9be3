// Coordinator: the part about direct rounds: which calls may come to one, and what is heard of those by messages
// (rounds_by_messages.hpp).
//
// Of a round to which all members come by messages it decides nothing: whoever has all inputs knows as much as it does.
// So it must not decide anything else either, as long as all may yet come so; once one will not, none will have all
// inputs, and the round is one like any other. A member that says more about the name than that it has come has seen
// the end of the round before the coordinator: that is kept for later.
#include <algorithm>
#include <utility>

#include "negotiate/coordinator.hpp"
#include "negotiate/round_places.hpp"
#include "negotiate/rounds_by_messages.hpp"

namespace ciranda {

Status Coordinator::on_input(int rank, InputMessage message, TimePoint now) {
  if (Status status = check_cache_id(rank, message.cache_id); !status.ok()) return status;
  Reported reported{rank, now};
  reported.direct_round = message.round;
  reported.input = std::move(message.input);
  return report(cache_ids_.name(message.cache_id), std::move(reported));
}

Status Coordinator::on_no_input(int rank, const NoInputMessage& message) {
  if (Status status = check_cache_id(rank, message.cache_id); !status.ok()) return status;
  Round& round = cache_ids_.name(message.cache_id).round;
  if (round.is_direct && round.direct_round == message.round && !round.has_arrived(rank))
    end_hope_of_direct_round(round);
  return Status::ok_status();
}

// If it has been cancelled, it has waited for too long, and may fail now.
void Coordinator::end_hope_of_direct_round(Round& round) {
  if (std::exchange(round.is_direct, false) && round.is_cancelled) stall_check_due_ = round.opened;
}

Status Coordinator::end_direct_round(NamedRounds& name) {
  cache_ids_.note_use(name.cache_id);
  forgive_duplicates(name.round.n_failed_before, &name.round);
  close_round(name);
  return hear_later(name);
}

Status Coordinator::hear_later(NamedRounds& name) {
  for (Reported& reported : std::exchange(name.later, {})) {
    const int rank = reported.rank;
    if (name.round.has_come_directly(rank)) {
      name.later.push_back(std::move(reported));
      continue;
    }
    const bool waits = members_.is_waiting(rank);  // as it has said since, and will not say again
    if (Status status = hear(name, std::move(reported)); !status.ok()) return status;
    if (waits) members_.waits(rank);
  }
  return Status::ok_status();
}

// Results that are compared are those of the log.
Direct Coordinator::direct_for(const Signature& signature,
                               const std::vector<std::vector<std::int64_t>>& first_dims) const {
  if (options_.direct == Direct::kNot || options_.check_interval != 0) return Direct::kNot;
  bool is_small = false;
  if (options_.direct == Direct::kInMemory) {
    const auto room = room_for(signature, first_dims.empty() ? nullptr : &first_dims, options_.size == 2);
    is_small = room && room->most_bytes() <= options_.limits.meeting_bytes;
  } else {
    is_small = may_go_by_messages(signature, options_.size, options_.limits.swap_bytes);
  }
  return is_small ? options_.direct : Direct::kNot;
}

}  // namespace ciranda
