// Participant: the part that is about meetings of calls without a name (unnamed.hpp).
#include "negotiate/participant.hpp"

namespace ciranda {

// Of this rank's calls without a name one at a time may be at the meeting, and none is in the log then: that is why the
// ranks agree on which call is the next.
std::optional<Participant::Meeting> Participant::unnamed_meeting(std::optional<std::uint32_t> signature,
                                                                 std::size_t n_bytes, std::uint64_t nth) const {
  if (!signature) return std::nullopt;
  Meeting meeting{kUnnamedId, *unnamed_.place, unnamed_.n_meetings};
  meeting.place.n_exact_bytes = n_bytes;
  meeting.tag = static_cast<std::uint32_t>(nth * UnnamedSignatures::kMost + *signature);
  return meeting;
}

std::optional<Participant::Meeting> Participant::meet_unnamed(const Request& request, std::uint64_t nth,
                                                              Ticket ticket) {
  if (!unnamed_.may_meet || !unnamed_.pending.empty()) return std::nullopt;
  const Signature& signature = request.signature;
  const auto meeting = unnamed_meeting(unnamed_signatures_.find(signature), signature.n_bytes(), nth);
  if (!meeting) return std::nullopt;
  unnamed_.way = Way::kMeeting;
  unnamed_.pending.push_back({ticket, nullptr});
  ++n_pending_;
  return meeting;
}

std::optional<Participant::Meeting> Participant::place_to_meet_unnamed(const Call& call, std::uint64_t nth) const {
  if (!unnamed_.may_meet || !unnamed_.pending.empty() || join_ != kNoTicket) return std::nullopt;
  return unnamed_meeting(unnamed_signatures_.find(call), call.n_bytes(), nth);
}

Participant::Ticket Participant::missed_unnamed() {
  unnamed_.way = Way::kReported;
  close_to_meetings(unnamed_);
  return take(unnamed_).ticket;
}

// All members do so at the same place of the log, whatever they have called since.
void Participant::open_unnamed(const Signature& signature, std::vector<Meeting>& to_close) {
  constexpr std::size_t kHeadBytes = 64;
  if (!UnnamedSignatures::may_meet(signature)) return;
  if (!unnamed_.place) unnamed_.place = places_.take(kHeadBytes + UnnamedSignatures::kMostBytes);
  if (!unnamed_.place) return;
  unnamed_signatures_.learn(signature);
  ++unnamed_.n_meetings;
  unnamed_.may_meet = true;
  ++n_open_to_meetings_;
  if (n_unnamed_reported_ == 0) return;
  if (const auto meeting = avoid_unnamed()) to_close.push_back(*meeting);
}

}  // namespace ciranda
