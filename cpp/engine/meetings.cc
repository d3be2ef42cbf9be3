#include "engine/meetings.hpp"

#include <algorithm>
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

// Rounds take turns with two parts of the area: who brings something to a round knows that all have come to the one
// before, and so have done with the one before that.
//
// What is so little that all of it has room beside the word lies there: the cache line that tells of the meeting brings
// it along.
std::byte* brought_by(int member, const SharedArena& arena, const Participant::Meeting& meeting) {
  const auto n_members = static_cast<std::size_t>(arena.n_members());
  if (2 * n_members * meeting.place.n_exact_bytes <= SharedArena::kBesideMeetingBytes) {
    const std::size_t index = meeting.round % 2 * n_members + static_cast<std::size_t>(member);
    return arena.beside_meeting(meeting.place.number) + index * meeting.place.n_exact_bytes;
  }
  const std::size_t n_before = meeting.round % 2 == 0 ? 0 : meeting.place.n_bytes;
  return arena.meeting_area(member).data() + meeting.place.offset + n_before;
}

}  // namespace

bool Meetings::come(SharedArena& arena, const Participant::Meeting& meeting, Participant::Ticket ticket) {
  close_what_is_due(arena);
  const Pending pending{meeting, ticket, &arena};
  bring(pending);
  in_flight_.at(ticket).operation->note(Moment::kReady);
  if (!at(arena, meeting).come(meeting.round)) return false;
  pending_.push_back(pending);
  return true;
}

Meetings::Outcome Meetings::try_to_meet(SharedArena& arena, const Participant::Meeting& meeting, const Call& call,
                                        Moments* moments, int n_looks) {
  const auto note = [moments](Moment moment) {
    if (moments != nullptr) moments->note(moment);
  };
  close_what_is_due(arena);
  const int root = info(call.collective).has_root ? call.root : -1;
  if (root < 0 || root == mesh_.rank()) bring_to_meeting(call, brought_by(mesh_.rank(), arena, meeting));
  note(Moment::kReady);
  Meeting place = at(arena, meeting);
  if (!place.come(meeting.round)) return Outcome::kClosed;
  for (int i = 0; !place.is_met(meeting.round); ++i) {
    if (i == n_looks || place.is_closed(meeting.round)) return Outcome::kOpen;
    relax();
  }
  note(Moment::kAgreed);
  brought_.clear();
  const int n_members = root < 0 ? mesh_.size() : root + 1;
  for (int member = std::max(root, 0); member < n_members; ++member) {
    brought_.push_back(member == mesh_.rank() ? call.memory.input : brought_by(member, arena, meeting));
  }
  carry_out_meeting(call, brought_, mesh_.size());
  note(Moment::kDone);
  n_met_.fetch_add(1, std::memory_order_relaxed);
  return Outcome::kMet;
}

void Meetings::close_what_is_due(SharedArena& arena) {
  if (to_close_.empty()) return;
  for (const auto& [slot, other] : std::exchange(to_close_, {})) close(&arena, other);
}

// Without this rank nobody meets, so it is in time if it is done before this rank comes to any. When a later round is
// closed all members have done with those before.
void Meetings::close(SharedArena* arena, const Participant::Meeting& meeting) {
  if (arena != nullptr) {
    at(*arena, meeting).close(meeting.round);
  } else {
    to_close_.insert_or_assign(meeting.slot, meeting);
  }
}

Meetings::News Meetings::look(bool closes) {
  News news;
  std::erase_if(pending_, [&](const Pending& pending) {
    Meeting meeting = at(*pending.arena, pending.meeting);
    const std::uint64_t round = pending.meeting.round;
    if (meeting.is_met(round) || (closes && !meeting.close(round))) {
      news.met.push_back(pending.meeting.slot);
      in_flight_.at(pending.ticket).operation->note(Moment::kAgreed);
      in_flight_.at(pending.ticket).outcome = carry_out(pending);
      n_met_.fetch_add(1, std::memory_order_relaxed);
      return true;
    }
    if (!closes && !meeting.is_closed(round)) return false;
    news.missed.push_back(pending.meeting.slot);
    return true;
  });
  return news;
}

void Meetings::bring(const Pending& pending) const {
  const Request& request = in_flight_.at(pending.ticket).request;
  const bool has_root = info(request.signature.collective).has_root;
  if (has_root && root_member(request.signature, mesh_) != mesh_.rank()) return;
  bring_to_meeting(request, brought_by(mesh_.rank(), *pending.arena, pending.meeting));
}

Status Meetings::carry_out(const Pending& pending) const {
  const InFlight::Entry& entry = in_flight_.at(pending.ticket);
  std::vector<const std::byte*> from;
  if (info(entry.request.signature.collective).has_root) {
    from.push_back(brought_by(root_member(entry.request.signature, mesh_), *pending.arena, pending.meeting));
  } else {
    for (int member = 0; member < mesh_.size(); ++member) {
      from.push_back(brought_by(member, *pending.arena, pending.meeting));
    }
  }
  return carry_out_meeting(entry, pending.meeting.first_dims.get(), std::move(from), mesh_, in_flight_.output_memory());
}

}  // namespace ciranda
