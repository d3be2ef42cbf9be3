#include "engine/rounds_in_memory.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/relax.hpp"
#include "engine/outputs.hpp"
#include "engine/work.hpp"

namespace ciranda {
namespace {

Meeting at(const SharedArena& arena, const Participant::DirectRound& round) {
  return {arena.meeting(round.place.number), arena.n_members()};
}

}  // namespace

bool RoundsInMemory::is_better_in_place(const SharedArena& arena, const Request& request) {
  const Signature& signature = request.signature;
  if (!info(signature.collective).reduces_for_all || signature.n_bytes() <= kMostRoundBytes) return false;
  std::size_t n_elsewhere = 0;
  for (std::size_t i = 0; i < request.memory.size() && n_elsewhere <= SharedArena::kStageBytes; ++i) {
    const std::size_t n_bytes = signature.tensors[i].n_bytes();
    if (!lies_in_region(arena, request.memory[i].output, n_bytes)) n_elsewhere += n_bytes;
  }
  return n_elsewhere <= SharedArena::kStageBytes && n_elsewhere < signature.n_bytes();
}

bool RoundsInMemory::come(SharedArena& arena, const Participant::DirectRound& round, Participant::Ticket ticket) {
  InFlight::Entry& entry = in_flight_.at(ticket);
  const std::vector<DirectTensor> tensors = tensors_of(entry.request, round.first_dims, mesh_.size());
  const bool has_come =
      enter(arena, round, call_of(entry, tensors), in_flight_.recorder().is_on() ? &entry.stages : nullptr);
  if (has_come) pending_.push_back({round, ticket, &arena});
  return has_come;
}

RoundsInMemory::Outcome RoundsInMemory::try_at_once(SharedArena& arena, const Participant::DirectRound& round,
                                                    const Call& call, std::byte* output, Stages* stages, int n_looks) {
  const DirectTensor tensor =
      tensor_of(call, round.first_dims == nullptr ? nullptr : &round.first_dims->front(), mesh_.size());
  const int root = info(call.collective).is_from_root ? call.root : -1;
  const RoundCall of_one{call.collective, root, {&tensor, 1}, mesh_.rank(), mesh_.size()};
  if (!enter(arena, round, of_one, stages)) return Outcome::kClosed;
  const Meeting place = at(arena, round);
  for (int i = 0; !place.is_met(round.number); ++i) {
    if (i == n_looks || place.is_closed(round.number)) return Outcome::kOpen;
    relax();
  }
  if (!RoundMemory::agree(arena, round)) return Outcome::kApart;
  if (stages != nullptr) stages->note(Stage::kAgreed);
  gather(arena, round, of_one);
  of_one.combine(contributed_, {&output, 1});
  note_done(arena, round);
  if (stages != nullptr) stages->note(Stage::kDone);
  return Outcome::kMet;
}

// Leaves there what this member contributes, and adds it to those who have come. False: the round is closed.
bool RoundsInMemory::enter(SharedArena& arena, const Participant::DirectRound& round, const RoundCall& call,
                           Stages* stages) {
  close_what_is_due(arena);
  std::byte* const to = memory_.for_writing(arena, round, call.collective);
  const bool has_room = to != nullptr;
  if (has_room && call.contributes(call.self)) {
    call.contribute(to, RoundMemory::how_to_write(round, call.collective));
  }
  RoundMemory::tag(arena, round);
  if (stages != nullptr) stages->note(Stage::kReady);
  if (!has_room) {
    close(&arena, round);
    return false;
  }
  if (at(arena, round).come(round.number)) return true;
  memory_.give_back(arena, round);
  return false;
}

// What each member has contributed; the root alone, where there is one.
void RoundsInMemory::gather(const SharedArena& arena, const Participant::DirectRound& round, const RoundCall& call) {
  contributed_.clear();
  for (int member = 0; member < call.n_members; ++member) {
    if (call.contributes(member)) contributed_.push_back(RoundMemory::of(member, arena, round));
  }
}

void RoundsInMemory::note_done(const SharedArena& arena, const Participant::DirectRound& round) {
  memory_.note_read(arena, round);
  n_met_.fetch_add(1, std::memory_order_relaxed);
}

void RoundsInMemory::close_what_is_due(SharedArena& arena) {
  if (to_close_.empty()) return;
  for (const auto& [place, other] : std::exchange(to_close_, {})) close(&arena, other);
}

// Without this rank no round is met, so it is in time if it is done before this rank comes to any. When a later round
// is closed all members have done with those before.
void RoundsInMemory::close(SharedArena* arena, const Participant::DirectRound& round) {
  if (arena != nullptr) {
    close_for_all(at(*arena, round), round.number, 0);
  } else {
    to_close_.insert_or_assign(round.place.number, round);
  }
}

// Those that have come early may sleep, and report the call now. `n_own`: of those who have come, this rank. False: it
// is met.
bool RoundsInMemory::close_for_all(Meeting place, std::uint64_t round, int n_own) {
  const bool is_closed = place.close(round);
  if (is_closed && place.n_come(round) > n_own) mesh_.notify(Urgency::kUrgent);
  return is_closed;
}

bool RoundsInMemory::holds(const Operation& operation) const {
  return std::ranges::any_of(
      pending_, [&](const Pending& pending) { return in_flight_.at(pending.ticket).operation.get() == &operation; });
}

RoundsInMemory::News RoundsInMemory::look(bool closes) {
  News news;
  std::erase_if(pending_, [&](const Pending& pending) {
    Meeting place = at(*pending.arena, pending.round);
    const std::uint64_t number = pending.round.number;
    const bool is_met = place.is_met(number) || (closes && !close_for_all(place, number, 1));
    if (is_met && RoundMemory::agree(*pending.arena, pending.round)) {
      news.met.push_back(pending.round.op);
      const bool is_repeated = in_flight_.at(pending.ticket).stages.path == Path::kRepeated;
      in_flight_.note_agreed(pending.ticket, is_repeated ? Path::kRepeated : Path::kMeeting,
                             in_flight_.recorder().now());
      in_flight_.at(pending.ticket).outcome = carry_out(pending);
      return true;
    }
    if (!is_met && !closes && !place.is_closed(number)) return false;
    memory_.give_back(*pending.arena, pending.round);
    news.missed.push_back(pending.round.op);
    return true;
  });
  return news;
}

RoundCall RoundsInMemory::call_of(const InFlight::Entry& entry, std::span<const DirectTensor> tensors) const {
  const Signature& signature = entry.request.signature;
  const int root = info(signature.collective).is_from_root ? root_member(signature, mesh_) : -1;
  return {signature.collective, root, tensors, mesh_.rank(), mesh_.size()};
}

// Not ok: there is no memory for the result.
Status RoundsInMemory::carry_out(const Pending& pending) {
  const InFlight::Entry& entry = in_flight_.at(pending.ticket);
  const FirstDims* const first_dims = pending.round.first_dims;
  std::vector<DirectTensor> tensors = tensors_of(entry.request, first_dims, mesh_.size());
  const RoundCall call = call_of(entry, tensors);
  gather(*pending.arena, pending.round, call);
  std::vector<std::vector<std::int64_t>> splits;
  FirstDims rows_from = first_dims == nullptr ? entry.request.splits : *first_dims;
  if (has_own_splits(entry.request.signature)) {
    splits = read_splits(tensors.size(), contributed_);
    rows_from = splits_for(static_cast<std::size_t>(call.self), splits, contributed_.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].all_splits = splits[i];
  }
  const auto outputs = give_outputs(entry, &rows_from, mesh_, in_flight_.output_memory());
  if (outputs.ok()) call.combine(contributed_, outputs.value());
  note_done(*pending.arena, pending.round);
  return outputs.status();
}

}  // namespace ciranda
