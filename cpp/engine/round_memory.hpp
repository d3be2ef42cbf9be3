// RoundMemory: finds where each member's contribution to a direct round lies in the shared memory.
// agree/round_rooms.hpp gives the size of a contribution.
//
// Each member's area has two halves, used by even and odd rounds. Writing is safe: every member has reached round n-1,
// so none still reads round n-2. If all contributions fit beside the round's word, they lie there instead: the cache
// line of the word carries them along. If a contribution is too large for the area, two members exchange buffers; each
// writes the number of its buffer beside the word.
//
// Calls without a name may have another signature each time. So each member writes a tag, which has a place of its own.
//
// Called by RoundsInMemory; one thread (the holder of the progress lock).
#pragma once

#include <array>
#include <cstddef>

#include "agree/direct_rounds.hpp"
#include "base/copy_bytes.hpp"
#include "transport/arena.hpp"
#include "transport/exchanged_buffers.hpp"

namespace ciranda {

class RoundMemory {
 public:
  // Returns the memory to which this member must write its contribution before it arrives at the round. Null if there
  // is no room now.
  std::byte* for_writing(const SharedArena& arena, const DirectRound& round, Collective collective);
  // Which member has read that memory last.
  static ReadLast read_last(const DirectRound& round, Collective collective);
  // Returns the memory because the round was closed. REQUIRES: for_writing() has not returned null.
  void give_back(const SharedArena& arena, const DirectRound& round);

  // For a call without a name: writes this member's tag, before it arrives at the round.
  static void tag(const SharedArena& arena, const DirectRound& round);

  // --- REQUIRES, from here on: the round is complete, and (but for keep_line()) its line is kept

  // Copies the cache line for the functions below, as soon as the round is complete: other members take the line away
  // when they write to it for their next round. It is not overwritten before this member arrives at the round after.
  void keep_line(const SharedArena& arena, const DirectRound& round);

  // For a call without a name: returns whether all members have written the same tag.
  bool agree(const SharedArena& arena, const DirectRound& round);
  // The contribution of a member. REQUIRES: it has written one.
  const std::byte* of(int member, const SharedArena& arena, const DirectRound& round);
  // This member has read all contributions.
  void note_read(const SharedArena& arena, const DirectRound& round);

 private:
  ExchangedBuffers buffers_;
  std::array<std::byte, SharedArena::kBesideArrivalsBytes / 2> kept_{};  // by keep_line(): the bytes beside the word
};

}  // namespace ciranda
