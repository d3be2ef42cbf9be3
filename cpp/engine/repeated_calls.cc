#include "engine/repeated_calls.hpp"

#include <utility>

namespace ciranda {

RepeatedCalls::Outcome RepeatedCalls::repeat(SharedArena& arena, const Call& call, Moments* moments, int n_looks) {
  const auto meeting = participant_.place_to_meet(call);
  if (!meeting || Meetings::is_better_in_place(arena, call.memory, call.n_bytes())) return std::nullopt;
  NamesInUse::Name& name = name_of(meeting->slot, call.name);
  if (!name.take()) return std::nullopt;
  if (moments != nullptr) moments->note(Moment::kTaken);
  const Meetings::Outcome outcome = meetings_.try_to_meet(arena, *meeting, call, moments, n_looks);
  if (outcome == Meetings::Outcome::kOpen) return wait_at(arena, *meeting, call, moments);
  const bool is_met = outcome == Meetings::Outcome::kMet;
  if (is_met) {
    participant_.met_at_once(meeting->slot);
    log_.met(meeting->slot);
  }
  name.release();
  return is_met ? Outcome(nullptr) : std::nullopt;
}

NamesInUse::Name& RepeatedCalls::name_of(std::uint32_t slot, std::string_view text) {
  if (slot >= repeated_.size()) repeated_.resize(std::size_t{slot} + 1, nullptr);
  if (repeated_[slot] == nullptr) repeated_[slot] = &names_.keep(text);
  return *repeated_[slot];
}

// This rank has come, and holds the name.
std::shared_ptr<Operation> RepeatedCalls::wait_at(const SharedArena& arena, const Participant::Meeting& meeting,
                                                  const Call& call, const Moments* moments) {
  auto operation = std::make_shared<Operation>();
  if (moments != nullptr) operation->keep_moments(*moments);
  const Participant::Ticket ticket = in_flight_.add(make_request(call), operation, true);
  participant_.meet(in_flight_.at(ticket).request, ticket);
  meetings_.wait_for(arena, meeting, ticket);
  return operation;
}

}  // namespace ciranda
