#include "engine/meeting_memory.hpp"

#include <cstring>

namespace ciranda {
namespace {

std::byte* beside_word(int member, std::size_t n_bytes, const SharedArena& arena, const Participant::Meeting& meeting) {
  const std::size_t parity = meeting.round % 2;
  const std::size_t index = parity * static_cast<std::size_t>(arena.n_members()) + static_cast<std::size_t>(member);
  return arena.beside_meeting(meeting.place.number) + index * n_bytes;
}

// The buffer that a member hands over.
SharedArena::Buffer buffer_of(int member, const SharedArena& arena, const Participant::Meeting& meeting) {
  SharedArena::Buffer buffer = 0;
  std::memcpy(&buffer, beside_word(member, sizeof buffer, arena, meeting), sizeof buffer);
  return buffer;
}

// In a broadcast one member writes only, and the other only reads.
ExchangedBuffers::Choice choice_for(Collective collective) {
  const bool reads_as_it_writes = collective != Collective::kBroadcast;
  return reads_as_it_writes ? ExchangedBuffers::Choice::kReadLast : ExchangedBuffers::Choice::kUnusedLongest;
}

// Of what does not lie in a buffer.
std::byte* memory_of(int member, const SharedArena& arena, const Participant::Meeting& meeting) {
  const MeetingPlace& place = meeting.place;
  const std::size_t n_beside = SharedArena::kBesideMeetingBytes / (2 * static_cast<std::size_t>(arena.n_members()));
  if (place.n_exact_bytes <= n_beside) return beside_word(member, place.n_exact_bytes, arena, meeting);
  const std::size_t n_before = meeting.round % 2 == 0 ? 0 : place.n_bytes;
  return arena.meeting_area(member).data() + place.offset + n_before;
}

}  // namespace

static_assert(SharedArena::kLargeBufferBytes == kMostBufferBytes);

std::byte* MeetingMemory::for_writing(const SharedArena& arena, const Participant::Meeting& meeting,
                                      Collective collective) {
  if (!meeting.place.is_in_buffer) return memory_of(arena.member(), arena, meeting);
  const auto buffer = buffers_.take(arena, meeting.place.n_exact_bytes, choice_for(collective));
  if (!buffer) return nullptr;
  std::memcpy(beside_word(arena.member(), sizeof *buffer, arena, meeting), &*buffer, sizeof *buffer);
  return arena.buffer(*buffer);
}

void MeetingMemory::give_back(const SharedArena& arena, const Participant::Meeting& meeting) {
  if (meeting.place.is_in_buffer) buffers_.give(buffer_of(arena.member(), arena, meeting));
}

const std::byte* MeetingMemory::of(int member, const SharedArena& arena, const Participant::Meeting& meeting) {
  if (!meeting.place.is_in_buffer) return memory_of(member, arena, meeting);
  return arena.buffer(buffer_of(member, arena, meeting));
}

void MeetingMemory::note_read(const SharedArena& arena, const Participant::Meeting& meeting) {
  if (meeting.place.is_in_buffer) buffers_.give(buffer_of(1 - arena.member(), arena, meeting));
}

}  // namespace ciranda
