#include "engine/meetings.hpp"

#include <chrono>
#include <span>
#include <utility>

#include "base/copy_bytes.hpp"
#include "engine/work.hpp"
#include "kernels/kernels.hpp"
#include "transport/meeting.hpp"

namespace ciranda {
namespace {

Meeting at(const SharedArena& arena, const Participant::Meeting& meeting) {
  return {arena.meeting(meeting.place.number), arena.n_members()};
}

}  // namespace

bool Meetings::come(SharedArena& arena, const Participant::Meeting& meeting, Participant::Ticket ticket) {
  for (const auto& [slot, other] : std::exchange(to_close_, {})) close(&arena, other);
  const Pending pending{meeting, ticket, &arena};
  bring(pending);
  in_flight_.at(ticket).operation->note(Moment::kReady);
  if (!at(arena, meeting).come(meeting.round)) return false;
  pending_.push_back(pending);
  return true;
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
      carry_out(pending);
      n_met_.fetch_add(1, std::memory_order_relaxed);
      return true;
    }
    if (!closes && !meeting.is_closed(round)) return false;
    news.missed.push_back(pending.meeting.slot);
    return true;
  });
  return news;
}

// Rounds take turns with two parts of the area: who brings something to a round knows that all have come to the one
// before, and so have done with the one before that.
std::byte* Meetings::brought(const Pending& pending, int member) const {
  const MeetingPlace& place = pending.meeting.place;
  const std::size_t n_before = pending.meeting.round % 2 == 0 ? 0 : place.n_bytes;
  return pending.arena->meeting_area(member).data() + place.offset + n_before;
}

void Meetings::bring(const Pending& pending) const {
  const Request& request = in_flight_.at(pending.ticket).request;
  const bool has_root = info(request.signature.collective).has_root;
  if (has_root && root_member(request.signature, mesh_) != mesh_.rank()) return;
  std::byte* to = brought(pending, mesh_.rank());
  for (std::size_t i = 0; i < request.memory.size(); ++i) {
    const TensorSignature& tensor = request.signature.tensors[i];
    copy_bytes(to, request.memory[i].input, tensor.n_bytes());
    to += meeting_bytes(tensor);
  }
}

void Meetings::carry_out(const Pending& pending) const {
  const Request& request = in_flight_.at(pending.ticket).request;
  const Signature& signature = request.signature;
  std::vector<const std::byte*> from;
  if (info(signature.collective).has_root) {
    from.push_back(brought(pending, root_member(signature, mesh_)));
  } else {
    for (int member = 0; member < mesh_.size(); ++member) from.push_back(brought(pending, member));
  }
  for (std::size_t i = 0; i < request.memory.size(); ++i) {
    const TensorSignature& tensor = signature.tensors[i];
    std::byte* output = request.memory[i].output;
    if (signature.collective == Collective::kAllreduce) {
      const kernels::Reduction reduction{tensor.dtype,        signature.op, signature.prescale,
                                         signature.postscale, mesh_.size(), {}};
      kernels::reduce(reduction, from, output, count_of(tensor.shape));
    } else if (output != nullptr) {
      copy_bytes(output, from.front(), tensor.n_bytes());
    }
    for (const std::byte*& source : from) source += meeting_bytes(tensor);
  }
}

}  // namespace ciranda
