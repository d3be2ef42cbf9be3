#include "agree/sent_inputs.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "agree/round_places.hpp"

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

Status SentInputs::begin(const InputMessage& message, Ticket ticket) {
  pending_.push_back({message.cache_id, message.round, ticket});
  return keep(member_, message);
}

Status SentInputs::hear(int member, const InputMessage& message) { return keep(member, message); }

Status SentInputs::keep(int member, const InputMessage& message) {
  Round& round = rounds_[message.cache_id][message.round % 2];
  if (message.round < round.number) return Status::ok_status();  // of a round that the log has decided
  if (message.round > round.number || round.is_here.empty()) {
    round = {message.round, std::vector<bool>(n_members_, false), 0, {}};
    round.inputs.resize(n_members_ * message.input.size());
  }
  const auto at = static_cast<std::size_t>(member);
  if (round.inputs.size() != n_members_ * message.input.size() || round.is_here[at]) {
    return Status::internal("an input of " + std::to_string(message.input.size()) + " bytes for round " +
                            std::to_string(message.round) + " of cache id " + std::to_string(message.cache_id) +
                            " does not fit the others, or came twice");
  }
  std::copy(message.input.begin(), message.input.end(),
            round.inputs.begin() + static_cast<std::ptrdiff_t>(at * message.input.size()));
  round.is_here[at] = true;
  ++round.n_here;
  return Status::ok_status();
}

void SentInputs::forget(Ticket ticket) {
  std::erase_if(pending_, [ticket](const Pending& pending) { return pending.ticket == ticket; });
}

std::vector<SentInputs::Done> SentInputs::take_done() {
  std::vector<Done> done;
  std::erase_if(pending_, [&](const Pending& pending) {
    Round& round = rounds_[pending.cache_id][pending.number % 2];
    if (round.number != pending.number || round.n_here < n_members_) return false;
    done.push_back({pending.cache_id, pending.ticket, std::move(round.inputs)});
    return true;
  });
  return done;
}

std::vector<SentInputs::Ticket> SentInputs::lost() const {
  std::vector<Ticket> lost;
  for (const Pending& pending : pending_) {
    const Round& round = round_of(pending);
    for (std::size_t member = 0; member < n_members_; ++member) {
      if (!has_ended_[member] || round.is_here[member]) continue;
      lost.push_back(pending.ticket);
      break;
    }
  }
  return lost;
}

}  // namespace ciranda
