#include "engine/round_memory.hpp"

#include <array>
#include <cstring>

#include "agree/unnamed.hpp"

namespace ciranda {
namespace {

// Even rounds use one half of the bytes beside the word, odd rounds the other half. So a member that is already at the
// next round does not overwrite this round's bytes.
constexpr std::size_t kBesideBytes = SharedArena::kBesideArrivalsBytes / 2;

// A round, and the bytes beside its word: those in the arena, or the copy of keep_line().
struct RoundLine {
  const SharedArena& arena;
  const DirectRound& round;
  std::byte* beside_word;
};

std::byte* beside_word_of(const SharedArena& arena, const DirectRound& round) {
  return arena.beside_arrivals(round.room.number) + round.number % 2 * kBesideBytes;
}

RoundLine in_arena(const SharedArena& arena, const DirectRound& round) {
  return {arena, round, beside_word_of(arena, round)};
}

std::byte* beside_word(int member, std::size_t n_bytes, const RoundLine& line) {
  return line.beside_word + static_cast<std::size_t>(member) * n_bytes;
}

// True if `n_bytes` of each member fit beside the word.
bool has_room_beside_word(std::size_t n_bytes, const SharedArena& arena) {
  return n_bytes * static_cast<std::size_t>(arena.n_members()) <= kBesideBytes;
}

// If the collective has a root, one of the two members only writes and the other only reads.
ExchangedBuffers::Choice choice_for(Collective collective) {
  return info(collective).is_from_root ? ExchangedBuffers::Choice::kUnusedLongest : ExchangedBuffers::Choice::kReadLast;
}

std::byte* area_of(int member, const RoundLine& line) {
  const ReservedRoom& room = line.round.room;
  const std::size_t n_before = line.round.number % 2 == 0 ? 0 : room.n_bytes;
  return line.arena.round_area(member).data() + room.offset + n_before;
}

// --- calls without a name: if there are few members, each has a place beside the word for its tag and four more bytes,
// which are its data, or the number of the buffer that it hands over

constexpr std::size_t kTagBytes = sizeof(std::uint32_t);
constexpr std::size_t kLittleBytes = 4;

bool has_place_beside_word(const SharedArena& arena) { return has_room_beside_word(kTagBytes + kLittleBytes, arena); }

std::byte* tag_of(int member, const RoundLine& line) {
  return has_place_beside_word(line.arena) ? beside_word(member, kTagBytes + kLittleBytes, line)
                                           : area_of(member, line);
}

std::byte* unnamed_memory_of(int member, const RoundLine& line) {
  const bool is_little = has_place_beside_word(line.arena) && line.round.room.n_exact_bytes <= kLittleBytes;
  return is_little ? tag_of(member, line) + kTagBytes : area_of(member, line) + UnnamedSignatures::kHeadBytes;
}

// --- buffers that two members exchange

// Where a member writes the number of the buffer that it hands over.
std::byte* place_of_buffer(int member, const RoundLine& line) {
  static_assert(sizeof(SharedArena::Buffer) <= kLittleBytes);
  return line.round.is_unnamed() ? tag_of(member, line) + kTagBytes
                                 : beside_word(member, sizeof(SharedArena::Buffer), line);
}

SharedArena::Buffer buffer_of(int member, const RoundLine& line) {
  SharedArena::Buffer buffer = 0;
  std::memcpy(&buffer, place_of_buffer(member, line), sizeof buffer);
  return buffer;
}

// ---

// A member's contribution, if it is not in a buffer.
std::byte* memory_of(int member, const RoundLine& line) {
  if (line.round.is_unnamed()) return unnamed_memory_of(member, line);
  const ReservedRoom& room = line.round.room;
  if (room.is_exact() && has_room_beside_word(room.n_exact_bytes, line.arena))
    return beside_word(member, room.n_exact_bytes, line);
  return area_of(member, line);
}

}  // namespace

static_assert(SharedArena::kLargeBufferBytes == kMostBufferBytes);

std::byte* RoundMemory::for_writing(const SharedArena& arena, const DirectRound& round, Collective collective) {
  const RoundLine line = in_arena(arena, round);
  if (!round.room.is_in_buffer) return memory_of(arena.member(), line);
  const auto buffer = buffers_.take(arena, round.room.n_exact_bytes, choice_for(collective));
  if (!buffer) return nullptr;
  std::memcpy(place_of_buffer(arena.member(), line), &*buffer, sizeof *buffer);
  return arena.buffer(*buffer);
}

ReadLast RoundMemory::read_last(const DirectRound& round, Collective collective) {
  const bool is_own = round.room.is_in_buffer && choice_for(collective) == ExchangedBuffers::Choice::kReadLast;
  return is_own ? ReadLast::kHere : ReadLast::kElsewhere;
}

void RoundMemory::tag(const SharedArena& arena, const DirectRound& round) {
  if (!round.is_unnamed()) return;
  std::memcpy(tag_of(arena.member(), in_arena(arena, round)), &round.tag, kTagBytes);
}

void RoundMemory::give_back(const SharedArena& arena, const DirectRound& round) {
  if (round.room.is_in_buffer) buffers_.give(buffer_of(arena.member(), in_arena(arena, round)));
}

void RoundMemory::keep_line(const SharedArena& arena, const DirectRound& round) {
  static_assert(std::tuple_size_v<decltype(kept_)> == kBesideBytes);
  std::memcpy(kept_.data(), beside_word_of(arena, round), kept_.size());
}

bool RoundMemory::agree(const SharedArena& arena, const DirectRound& round) {
  for (int member = 0; round.is_unnamed() && member < arena.n_members(); ++member) {
    if (std::memcmp(tag_of(member, {arena, round, kept_.data()}), &round.tag, kTagBytes) != 0) return false;
  }
  return true;
}

const std::byte* RoundMemory::of(int member, const SharedArena& arena, const DirectRound& round) {
  const RoundLine line{arena, round, kept_.data()};
  return round.room.is_in_buffer ? arena.buffer(buffer_of(member, line)) : memory_of(member, line);
}

void RoundMemory::note_read(const SharedArena& arena, const DirectRound& round) {
  if (round.room.is_in_buffer) buffers_.give(buffer_of(1 - arena.member(), {arena, round, kept_.data()}));
}

}  // namespace ciranda
