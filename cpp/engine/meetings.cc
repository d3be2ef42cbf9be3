#include "engine/meetings.hpp"

#include <chrono>
#include <utility>

#include "base/relax.hpp"
#include "engine/meeting_data.hpp"
#include "engine/work.hpp"
#include "transport/meeting.hpp"

namespace ciranda {
namespace {

Meeting at(const SharedArena& arena, const Participant::Meeting& meeting) {
  return {arena.meeting(meeting.place.number), arena.n_members()};
}

// Calls `visit` for each member that contributes something: for `root` alone, or for all where that is -1.
template <typename Visit>
void for_each_bringer(int root, int n_members, Visit visit) {
  if (root >= 0) return visit(root);
  for (int member = 0; member < n_members; ++member) visit(member);
}

}  // namespace

bool Meetings::come(SharedArena& arena, const Participant::Meeting& meeting, Participant::Ticket ticket) {
  close_what_is_due(arena);
  const Pending pending{meeting, ticket, &arena};
  const bool has_room = contribute(pending);
  in_flight_.note(ticket, Stage::kReady);
  if (has_room && at(arena, meeting).come(meeting.round)) {
    pending_.push_back(pending);
    return true;
  }
  if (has_room) {
    take_back(pending);
  } else {
    close(&arena, meeting);
  }
  return false;
}

Meetings::Outcome Meetings::try_to_meet(SharedArena& arena, const Participant::Meeting& meeting, const Call& call,
                                        std::byte* output, Stages* stages, int n_looks) {
  const auto note = [stages](Stage stage) {
    if (stages != nullptr) stages->note(stage);
  };
  close_what_is_due(arena);
  const int root = info(call.collective).has_root ? call.root : -1;
  std::byte* to = memory_.for_writing(arena, meeting, call.collective);
  if (to == nullptr) return Outcome::kClosed;
  const DirectTensor tensor = tensor_of(call, meeting.first_dims, mesh_);
  const auto self = static_cast<std::size_t>(mesh_.rank());
  if (root < 0 || root == mesh_.rank()) ciranda::contribute(tensor, self, static_cast<std::size_t>(mesh_.size()), to);
  MeetingMemory::tag(arena, meeting);
  note(Stage::kReady);
  Meeting place = at(arena, meeting);
  if (!place.come(meeting.round)) {
    memory_.give_back(arena, meeting);
    return Outcome::kClosed;
  }
  for (int i = 0; !place.is_met(meeting.round); ++i) {
    if (i == n_looks || place.is_closed(meeting.round)) return Outcome::kOpen;
    relax();
  }
  if (!MeetingMemory::agree(arena, meeting)) return Outcome::kApart;
  note(Stage::kAgreed);
  contributed_.clear();
  for_each_bringer(root, mesh_.size(), [&](int member) {
    contributed_.push_back(member == mesh_.rank() ? call.memory.input : MeetingMemory::of(member, arena, meeting));
  });
  combine(tensor, self, contributed_, output);
  memory_.note_read(arena, meeting);
  note(Stage::kDone);
  n_met_.fetch_add(1, std::memory_order_relaxed);
  return Outcome::kMet;
}

void Meetings::close_what_is_due(SharedArena& arena) {
  if (to_close_.empty()) return;
  for (const auto& [cache_id, other] : std::exchange(to_close_, {})) close(&arena, other);
}

// Without this rank nobody meets, so it is in time if it is done before this rank comes to any. When a later round is
// closed all members have done with those before.
void Meetings::close(SharedArena* arena, const Participant::Meeting& meeting) {
  if (arena != nullptr) {
    at(*arena, meeting).close(meeting.round);
  } else {
    to_close_.insert_or_assign(meeting.cache_id, meeting);
  }
}

Meetings::News Meetings::look(bool closes) {
  News news;
  std::erase_if(pending_, [&](const Pending& pending) {
    Meeting meeting = at(*pending.arena, pending.meeting);
    const std::uint64_t round = pending.meeting.round;
    const bool is_met = meeting.is_met(round) || (closes && !meeting.close(round));
    if (is_met && MeetingMemory::agree(*pending.arena, pending.meeting)) {
      news.met.push_back(pending.meeting.cache_id);
      const bool is_repeated = in_flight_.at(pending.ticket).stages.path == Path::kRepeated;
      in_flight_.note_agreed(pending.ticket, is_repeated ? Path::kRepeated : Path::kMeeting,
                             in_flight_.recorder().now());
      in_flight_.at(pending.ticket).outcome = carry_out(pending);
      n_met_.fetch_add(1, std::memory_order_relaxed);
      return true;
    }
    if (!is_met && !closes && !meeting.is_closed(round)) return false;
    take_back(pending);
    news.missed.push_back(pending.meeting.cache_id);
    return true;
  });
  return news;
}

// The member that alone contributes something; -1: all do.
int Meetings::root_of(const Pending& pending) const {
  const Signature& signature = in_flight_.at(pending.ticket).request.signature;
  return info(signature.collective).has_root ? root_member(signature, mesh_) : -1;
}

bool Meetings::contributes(const Pending& pending) const {
  const int root = root_of(pending);
  return root < 0 || root == mesh_.rank();
}

// False: there is no room for it.
bool Meetings::contribute(const Pending& pending) {
  const Request& request = in_flight_.at(pending.ticket).request;
  std::byte* to = memory_.for_writing(*pending.arena, pending.meeting, request.signature.collective);
  if (to != nullptr && contributes(pending)) contribute_to_meeting(request, mesh_, to);
  MeetingMemory::tag(*pending.arena, pending.meeting);
  return to != nullptr;
}

void Meetings::take_back(const Pending& pending) { memory_.give_back(*pending.arena, pending.meeting); }

Status Meetings::carry_out(const Pending& pending) {
  const int root = root_of(pending);
  std::vector<const std::byte*> from;
  for_each_bringer(root, mesh_.size(),
                   [&](int member) { from.push_back(MeetingMemory::of(member, *pending.arena, pending.meeting)); });
  Status status = carry_out_meeting(in_flight_.at(pending.ticket), pending.meeting.first_dims, std::move(from), mesh_,
                                    in_flight_.output_memory());
  memory_.note_read(*pending.arena, pending.meeting);
  return status;
}

}  // namespace ciranda
