// RoundMemory: where in the memory that members share lies what each contributes to a direct round
// (agree/round_places.hpp says how much that is).
//
// In the member's area, where rounds take turns with two parts: who contributes something to a round knows that all
// have come to the one before, and so have done with the one before that. What is so little that all of it has room
// beside the round's word lies there: the cache line that tells of the round brings it along. For what is too much
// for the area two members exchange buffers; which one it hands over, each says beside the word.
//
// Calls without a name may contribute something else each time: so each member's tag has a place of its own.
//
// One thread (the holder of the progress lock).
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
  // For this member to write to, if it contributes something, before it comes; null if there is no room for it now.
  std::byte* for_writing(const SharedArena& arena, const DirectRound& round, Collective collective);
  // Who has read that memory last.
  static ReadLast read_last(const DirectRound& round, Collective collective);
  // It came to nothing: the round was closed. REQUIRES: for_writing() gave room.
  void give_back(const SharedArena& arena, const DirectRound& round);

  // Of a call without a name: what this member says of it, before it comes.
  static void tag(const SharedArena& arena, const DirectRound& round);

  // --- REQUIRES, from here on: the round is met, and its line is kept

  // For those below, at once: members that go on take the cache line away when they write to it for their next round.
  // Not overwritten before this member comes to the round after.
  void keep_line(const SharedArena& arena, const DirectRound& round);

  // Of a call without a name: whether all have said the same.
  bool agree(const SharedArena& arena, const DirectRound& round);
  // What a member has written. REQUIRES: it has.
  const std::byte* of(int member, const SharedArena& arena, const DirectRound& round);
  // This member needs no more of what the others have written.
  void note_read(const SharedArena& arena, const DirectRound& round);

 private:
  ExchangedBuffers buffers_;
  std::array<std::byte, SharedArena::kBesideArrivalsBytes / 2> kept_{};  // what lies beside the word
};

}  // namespace ciranda
