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

std::byte* area_of(int member, const SharedArena& arena, const Participant::Meeting& meeting) {
  const std::size_t n_before = meeting.round % 2 == 0 ? 0 : meeting.place.n_bytes;
  return arena.meeting_area(member).data() + meeting.place.offset + n_before;
}

// --- calls without a name: beside the word there is a place for the tag and four bytes of data, where members are few

constexpr std::size_t kTagBytes = sizeof(std::uint32_t);
constexpr std::size_t kLittleBytes = 4;
constexpr std::size_t kHeadBytes = 64;  // of an area, for the tag

bool has_place_beside_word(const SharedArena& arena) {
  const auto n_places = 2 * static_cast<std::size_t>(arena.n_members());
  return n_places * (kTagBytes + kLittleBytes) <= SharedArena::kBesideMeetingBytes;
}

std::byte* tag_of(int member, const SharedArena& arena, const Participant::Meeting& meeting) {
  return has_place_beside_word(arena) ? beside_word(member, kTagBytes + kLittleBytes, arena, meeting)
                                      : area_of(member, arena, meeting);
}

std::byte* unnamed_memory_of(int member, const SharedArena& arena, const Participant::Meeting& meeting) {
  const bool is_little = has_place_beside_word(arena) && meeting.place.n_exact_bytes <= kLittleBytes;
  return is_little ? tag_of(member, arena, meeting) + kTagBytes : area_of(member, arena, meeting) + kHeadBytes;
}

// ---

// Of what does not lie in a buffer.
std::byte* memory_of(int member, const SharedArena& arena, const Participant::Meeting& meeting) {
  if (meeting.is_unnamed()) return unnamed_memory_of(member, arena, meeting);
  const MeetingPlace& place = meeting.place;
  const std::size_t n_beside = SharedArena::kBesideMeetingBytes / (2 * static_cast<std::size_t>(arena.n_members()));
  if (place.n_exact_bytes <= n_beside) return beside_word(member, place.n_exact_bytes, arena, meeting);
  return area_of(member, arena, meeting);
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

void MeetingMemory::tag(const SharedArena& arena, const Participant::Meeting& meeting) {
  if (meeting.is_unnamed()) std::memcpy(tag_of(arena.member(), arena, meeting), &meeting.tag, kTagBytes);
}

bool MeetingMemory::agree(const SharedArena& arena, const Participant::Meeting& meeting) {
  for (int member = 0; meeting.is_unnamed() && member < arena.n_members(); ++member) {
    if (std::memcmp(tag_of(member, arena, meeting), &meeting.tag, kTagBytes) != 0) return false;
  }
  return true;
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
