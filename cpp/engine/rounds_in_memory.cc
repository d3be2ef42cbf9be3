#include "engine/rounds_in_memory.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/relax.hpp"
#include "engine/collectives/functions.hpp"
#include "engine/round_data.hpp"
#include "engine/work.hpp"

namespace ciranda {
namespace {

Meeting at(const SharedArena& arena, const Participant::DirectRound& round) {
  return {arena.meeting(round.place.number), arena.n_members()};
}

// Calls `visit` for each member that contributes something: for `root` alone, or for all where that is -1.
template <typename Visit>
void for_each_contributor(int root, int n_members, Visit visit) {
  if (root >= 0) return visit(root);
  for (int member = 0; member < n_members; ++member) visit(member);
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
  close_what_is_due(arena);
  const Pending pending{round, ticket, &arena};
  const bool has_room = contribute(pending);
  in_flight_.note(ticket, Stage::kReady);
  if (has_room && at(arena, round).come(round.number)) {
    pending_.push_back(pending);
    return true;
  }
  if (has_room) {
    take_back(pending);
  } else {
    close(&arena, round);
  }
  return false;
}

RoundsInMemory::Outcome RoundsInMemory::try_at_once(SharedArena& arena, const Participant::DirectRound& round,
                                                    const Call& call, std::byte* output, Stages* stages, int n_looks) {
  const auto note = [stages](Stage stage) {
    if (stages != nullptr) stages->note(stage);
  };
  close_what_is_due(arena);
  const int root = info(call.collective).is_from_root ? call.root : -1;
  std::byte* to = memory_.for_writing(arena, round, call.collective);
  if (to == nullptr) return Outcome::kClosed;
  const DirectTensor tensor =
      tensor_of(call, round.first_dims == nullptr ? nullptr : &round.first_dims->front(), mesh_);
  const auto self = static_cast<std::size_t>(mesh_.rank());
  if (root < 0 || root == mesh_.rank()) {
    const StagingCopy how = RoundMemory::how_to_write(round, call.collective);
    ciranda::contribute(tensor, self, static_cast<std::size_t>(mesh_.size()), to, how);
  }
  RoundMemory::tag(arena, round);
  note(Stage::kReady);
  Meeting place = at(arena, round);
  if (!place.come(round.number)) {
    memory_.give_back(arena, round);
    return Outcome::kClosed;
  }
  for (int i = 0; !place.is_met(round.number); ++i) {
    if (i == n_looks || place.is_closed(round.number)) return Outcome::kOpen;
    relax();
  }
  if (!RoundMemory::agree(arena, round)) return Outcome::kApart;
  note(Stage::kAgreed);
  contributed_.clear();
  for_each_contributor(root, mesh_.size(), [&](int member) {
    contributed_.push_back(member == mesh_.rank() ? call.memory.input : RoundMemory::of(member, arena, round));
  });
  functions(call.collective).combine(tensor, self, contributed_, output);
  memory_.note_read(arena, round);
  note(Stage::kDone);
  n_met_.fetch_add(1, std::memory_order_relaxed);
  return Outcome::kMet;
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
      n_met_.fetch_add(1, std::memory_order_relaxed);
      return true;
    }
    if (!is_met && !closes && !place.is_closed(number)) return false;
    take_back(pending);
    news.missed.push_back(pending.round.op);
    return true;
  });
  return news;
}

// The member that alone contributes something; -1: all do.
int RoundsInMemory::root_of(const Pending& pending) const {
  const Signature& signature = in_flight_.at(pending.ticket).request.signature;
  return info(signature.collective).is_from_root ? root_member(signature, mesh_) : -1;
}

bool RoundsInMemory::contributes(const Pending& pending) const {
  const int root = root_of(pending);
  return root < 0 || root == mesh_.rank();
}

// False: there is no room for it.
bool RoundsInMemory::contribute(const Pending& pending) {
  const Request& request = in_flight_.at(pending.ticket).request;
  const Collective collective = request.signature.collective;
  std::byte* to = memory_.for_writing(*pending.arena, pending.round, collective);
  if (to != nullptr && contributes(pending)) {
    contribute_to_round(request, mesh_, to, RoundMemory::how_to_write(pending.round, collective));
  }
  RoundMemory::tag(*pending.arena, pending.round);
  return to != nullptr;
}

void RoundsInMemory::take_back(const Pending& pending) { memory_.give_back(*pending.arena, pending.round); }

Status RoundsInMemory::carry_out(const Pending& pending) {
  const int root = root_of(pending);
  std::vector<const std::byte*> from;
  for_each_contributor(root, mesh_.size(),
                       [&](int member) { from.push_back(RoundMemory::of(member, *pending.arena, pending.round)); });
  Status status = carry_out_round(in_flight_.at(pending.ticket), pending.round.first_dims, std::move(from), mesh_,
                                  in_flight_.output_memory());
  memory_.note_read(*pending.arena, pending.round);
  return status;
}

}  // namespace ciranda
