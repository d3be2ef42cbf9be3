// ArenaSession: this rank's place in the chunk sequence of a shared arena. All ranks run the same collectives in the
// same order, so each knows the number of every chunk without being told.
//
// Invariant: chunk k may be packed once every member has consumed chunk k - 2, which used the same slot. Every member
// publishes every counter it is waited for on, and kConsumed for every chunk, also where it had nothing to do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collective/arena_parts.hpp"
#include "transport/arena.hpp"

namespace ciranda {

class ArenaSession {
 public:
  using Counter = SharedArena::Counter;

  explicit ArenaSession(SharedArena& arena) : arena_(arena), parts_(arena) {}

  const SharedArena& arena() const { return arena_; }
  int n_members() const { return arena_.n_members(); }
  int member() const { return arena_.member(); }
  std::size_t slot_bytes() const { return arena_.slot_bytes(); }
  // What each of so many may have of a slot that is shared out equally: whole cache lines. 0: they are too many.
  std::size_t share_bytes(int n_shares) const {
    constexpr std::size_t kLine = 64;
    return slot_bytes() / static_cast<std::size_t>(n_shares) / kLine * kLine;
  }
  std::size_t share_bytes() const { return share_bytes(n_members()); }
  std::byte* slot(int member, std::uint64_t chunk) const { return arena_.slot(member, chunk); }
  std::byte* own_slot(std::uint64_t chunk) const { return slot(member(), chunk); }

  // The numbers of the next n_chunks chunks: the first of them.
  std::uint64_t take(std::uint64_t n_chunks) {
    const std::uint64_t first = next_chunk_;
    next_chunk_ += n_chunks;
    return first;
  }

  bool is_slot_free(std::uint64_t chunk) const { return parts_.is_free(ArenaParts::last_of(chunk)); }
  void publish(Counter which, std::uint64_t chunk) const { parts_.publish(which, ArenaParts::last_of(chunk)); }
  bool has(int member, Counter which, std::uint64_t chunk) const {
    return parts_.has(member, which, ArenaParts::last_of(chunk));
  }
  bool have_all(Counter which, std::uint64_t chunk) const { return parts_.have_all(which, ArenaParts::last_of(chunk)); }

  // The members that have not published `which` for the chunk.
  std::vector<int> lacking(Counter which, std::uint64_t chunk) const {
    return parts_.lacking(which, ArenaParts::last_of(chunk));
  }
  // The members that keep a chunk's slot from being free.
  std::vector<int> holding_slot(std::uint64_t chunk) const { return parts_.holding(ArenaParts::last_of(chunk)); }

  // For those that hand chunks over part by part.
  const ArenaParts& parts() const { return parts_; }

 private:
  SharedArena& arena_;
  ArenaParts parts_;
  std::uint64_t next_chunk_ = 0;
};

}  // namespace ciranda
