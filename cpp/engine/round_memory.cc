#include "engine/round_memory.hpp"

#include <cstring>

#include "agree/unnamed.hpp"

namespace ciranda {
namespace {

std::byte* beside_word(int member, std::size_t n_bytes, const SharedArena& arena, const DirectRound& round) {
  const std::size_t parity = round.number % 2;
  const std::size_t index = parity * static_cast<std::size_t>(arena.n_members()) + static_cast<std::size_t>(member);
  return arena.beside_arrivals(round.place.number) + index * n_bytes;
}

// From a root one member writes only, and the other only reads.
ExchangedBuffers::Choice choice_for(Collective collective) {
  return info(collective).is_from_root ? ExchangedBuffers::Choice::kUnusedLongest : ExchangedBuffers::Choice::kReadLast;
}

std::byte* area_of(int member, const SharedArena& arena, const DirectRound& round) {
  const std::size_t n_before = round.number % 2 == 0 ? 0 : round.place.n_bytes;
  return arena.round_area(member).data() + round.place.offset + n_before;
}

// --- calls without a name: beside the word there is a place for the tag and four bytes of data, or the buffer that is
// handed over, where members are few

constexpr std::size_t kTagBytes = sizeof(std::uint32_t);
constexpr std::size_t kLittleBytes = 4;

bool has_place_beside_word(const SharedArena& arena) {
  const auto n_places = 2 * static_cast<std::size_t>(arena.n_members());
  return n_places * (kTagBytes + kLittleBytes) <= SharedArena::kBesideArrivalsBytes;
}

std::byte* tag_of(int member, const SharedArena& arena, const DirectRound& round) {
  return has_place_beside_word(arena) ? beside_word(member, kTagBytes + kLittleBytes, arena, round)
                                      : area_of(member, arena, round);
}

std::byte* unnamed_memory_of(int member, const SharedArena& arena, const DirectRound& round) {
  const bool is_little = has_place_beside_word(arena) && round.place.n_exact_bytes <= kLittleBytes;
  return is_little ? tag_of(member, arena, round) + kTagBytes
                   : area_of(member, arena, round) + UnnamedSignatures::kHeadBytes;
}

// --- what two members exchange

// Where a member says which buffer it hands over.
std::byte* place_of_buffer(int member, const SharedArena& arena, const DirectRound& round) {
  static_assert(sizeof(SharedArena::Buffer) <= kLittleBytes);
  return round.is_unnamed() ? tag_of(member, arena, round) + kTagBytes
                            : beside_word(member, sizeof(SharedArena::Buffer), arena, round);
}

SharedArena::Buffer buffer_of(int member, const SharedArena& arena, const DirectRound& round) {
  SharedArena::Buffer buffer = 0;
  std::memcpy(&buffer, place_of_buffer(member, arena, round), sizeof buffer);
  return buffer;
}

// ---

// Of what does not lie in a buffer.
std::byte* memory_of(int member, const SharedArena& arena, const DirectRound& round) {
  if (round.is_unnamed()) return unnamed_memory_of(member, arena, round);
  const RoundPlace& place = round.place;
  const std::size_t n_places = 2 * static_cast<std::size_t>(arena.n_members());
  if (place.is_exact() && place.n_exact_bytes * n_places <= SharedArena::kBesideArrivalsBytes)
    return beside_word(member, place.n_exact_bytes, arena, round);
  return area_of(member, arena, round);
}

}  // namespace

static_assert(SharedArena::kLargeBufferBytes == kMostBufferBytes);

std::byte* RoundMemory::for_writing(const SharedArena& arena, const DirectRound& round, Collective collective) {
  if (!round.place.is_in_buffer) return memory_of(arena.member(), arena, round);
  const auto buffer = buffers_.take(arena, round.place.n_exact_bytes, choice_for(collective));
  if (!buffer) return nullptr;
  std::memcpy(place_of_buffer(arena.member(), arena, round), &*buffer, sizeof *buffer);
  return arena.buffer(*buffer);
}

ReadLast RoundMemory::read_last(const DirectRound& round, Collective collective) {
  const bool is_own = round.place.is_in_buffer && choice_for(collective) == ExchangedBuffers::Choice::kReadLast;
  return is_own ? ReadLast::kHere : ReadLast::kElsewhere;
}

void RoundMemory::tag(const SharedArena& arena, const DirectRound& round) {
  if (round.is_unnamed()) std::memcpy(tag_of(arena.member(), arena, round), &round.tag, kTagBytes);
}

bool RoundMemory::agree(const SharedArena& arena, const DirectRound& round) {
  for (int member = 0; round.is_unnamed() && member < arena.n_members(); ++member) {
    if (std::memcmp(tag_of(member, arena, round), &round.tag, kTagBytes) != 0) return false;
  }
  return true;
}

void RoundMemory::give_back(const SharedArena& arena, const DirectRound& round) {
  if (round.place.is_in_buffer) buffers_.give(buffer_of(arena.member(), arena, round));
}

const std::byte* RoundMemory::of(int member, const SharedArena& arena, const DirectRound& round) {
  if (!round.place.is_in_buffer) return memory_of(member, arena, round);
  return arena.buffer(buffer_of(member, arena, round));
}

void RoundMemory::note_read(const SharedArena& arena, const DirectRound& round) {
  if (round.place.is_in_buffer) buffers_.give(buffer_of(1 - arena.member(), arena, round));
}

}  // namespace ciranda
