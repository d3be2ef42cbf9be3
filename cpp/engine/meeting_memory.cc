#include "engine/meeting_memory.hpp"

#include <cstring>

namespace ciranda {
namespace {

std::byte* beside_word(int member, std::size_t n_bytes, const SharedArena& arena, const Participant::Meeting& meeting) {
  const std::size_t parity = meeting.round % 2;
  const std::size_t index = parity * static_cast<std::size_t>(arena.n_members()) + static_cast<std::size_t>(member);
  return arena.beside_meeting(meeting.place.number) + index * n_bytes;
}

MeetingRing::Unit unit_of(int member, const SharedArena& arena, const Participant::Meeting& meeting) {
  MeetingRing::Unit unit = 0;
  std::memcpy(&unit, beside_word(member, sizeof unit, arena, meeting), sizeof unit);
  return unit;
}

// Of what does not lie in the ring.
std::byte* memory_of(int member, const SharedArena& arena, const Participant::Meeting& meeting) {
  const MeetingPlace& place = meeting.place;
  const std::size_t n_beside = SharedArena::kBesideMeetingBytes / (2 * static_cast<std::size_t>(arena.n_members()));
  if (place.n_exact_bytes <= n_beside) return beside_word(member, place.n_exact_bytes, arena, meeting);
  const std::size_t n_before = meeting.round % 2 == 0 ? 0 : place.n_bytes;
  return arena.meeting_area(member).data() + place.offset + n_before;
}

}  // namespace

std::byte* MeetingMemory::for_writing(const SharedArena& arena, const Participant::Meeting& meeting) {
  if (!meeting.place.is_in_ring) return memory_of(arena.member(), arena, meeting);
  const auto unit = ring_.take(arena, meeting.place.n_exact_bytes);
  if (!unit) return nullptr;
  std::memcpy(beside_word(arena.member(), sizeof *unit, arena, meeting), &*unit, sizeof *unit);
  return arena.ring_unit(arena.member(), *unit);
}

void MeetingMemory::give_back(const SharedArena& arena, const Participant::Meeting& meeting) {
  if (!meeting.place.is_in_ring) return;
  ring_.give_back(unit_of(arena.member(), arena, meeting), meeting.place.n_exact_bytes);
}

const std::byte* MeetingMemory::of(int member, const SharedArena& arena, const Participant::Meeting& meeting) {
  if (!meeting.place.is_in_ring) return memory_of(member, arena, meeting);
  return arena.ring_unit(member, unit_of(member, arena, meeting));
}

void MeetingMemory::note_read(int member, const SharedArena& arena, const Participant::Meeting& meeting) {
  if (!meeting.place.is_in_ring) return;
  MeetingRing::note_read(arena, unit_of(member, arena, meeting), meeting.place.n_exact_bytes);
}

}  // namespace ciranda
