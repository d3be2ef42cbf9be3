#include "agree/sent_inputs.hpp"

#include <string>
#include <utility>

#include "agree/round_rooms.hpp"

namespace ciranda {

bool may_go_by_messages(const Signature& signature, int n_members, std::size_t most_bytes) {
  const bool is_plain =
      info(signature.collective).reduces_for_all && may_go_direct(signature) && signature.tensors.size() == 1;
  if (!is_plain) return false;
  const std::size_t n_bytes = signature.tensors.front().n_bytes();
  return n_bytes > 0 && n_bytes <= most_bytes / static_cast<std::size_t>(n_members);
}

SentInputs::SentInputs(int member, int n_members)
    : member_(member), n_members_(static_cast<std::size_t>(n_members)), has_ended_(n_members_, false) {}

Status SentInputs::begin(InputMessage message, Ticket ticket) {
  pending_.push_back({message.cache_id, message.round, ticket});
  return on_input(member_, std::move(message));
}

Status SentInputs::on_input(int member, InputMessage message) {
  RoundInputs& round = rounds_[message.cache_id][message.round % 2];
  if (message.round < round.number) return Status::ok_status();  // the log has decided that round
  const std::size_t n_bytes = message.input.bytes().size();
  if (message.round > round.number || round.n_here == 0) {
    round = {message.round, 0, n_bytes, member, std::vector<Payload>(n_members_)};
  }
  const auto at = static_cast<std::size_t>(member);
  if (n_bytes != round.n_bytes || n_bytes == 0 || round.has(at)) {
    return Status::internal("an input of " + std::to_string(n_bytes) + " bytes for round " +
                            std::to_string(message.round) + " of cache id " + std::to_string(message.cache_id) +
                            " does not match the others, or arrived twice");
  }
  round.inputs[at] = std::move(message.input);
  round.last = member;
  ++round.n_here;
  return Status::ok_status();
}

void SentInputs::forget(Ticket ticket) {
  std::erase_if(pending_, [&](const Pending& pending) {
    if (pending.ticket != ticket) return false;
    RoundInputs& round = rounds_[pending.cache_id][pending.number % 2];
    if (round.number == pending.number) round = {pending.number + 2, 0, 0, 0, {}};  // late inputs are dropped
    return true;
  });
}

std::vector<SentInputs::Done> SentInputs::take_done() {
  std::vector<Done> done;
  std::erase_if(pending_, [&](const Pending& pending) {
    RoundInputs& round = rounds_[pending.cache_id][pending.number % 2];
    if (round.number != pending.number || round.n_here < n_members_) return false;
    done.push_back({pending.cache_id, pending.ticket, std::exchange(round.inputs, {}), round.last});
    return true;
  });
  return done;
}

std::vector<Ticket> SentInputs::lost() const {
  std::vector<Ticket> lost;
  for (const Pending& pending : pending_) {
    const RoundInputs& round = round_of(pending);
    for (std::size_t member = 0; member < n_members_; ++member) {
      if (!has_ended_[member] || round.has(member)) continue;
      lost.push_back(pending.ticket);
      break;
    }
  }
  return lost;
}

}  // namespace ciranda
