// ArenaSession: this rank's position in the chunk sequence of a shared arena. All ranks run the same collectives in the
// same order, so each computes the number of every chunk by itself.
//
// Invariant: chunk k may be packed once every member has consumed chunk k - 2, which used the same slot. Every member
// publishes every counter that others wait for, and kConsumed for every chunk, even if it had nothing to do.
//
// A chunk has kParts parts, each in its part of the slot, and may be handed over part by part: part p belongs to chunk
// p / kParts. Counters count the parts that a member has finished. A member that handles a whole chunk at once
// publishes its last part. Parts that the last chunk of a collective does not need are skipped: a counter that has
// reached a later part includes all parts before.
//
// Called by RegionPieces and the algorithms in shared memory (shm_*.cc), through launch.hpp; PeerGroup, PeerSettling
// and PeerCollective, to which Backend gives it; owned by NativeBackend, or by Backends if devices alone use the arena;
// one thread (the holder of the progress lock).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/arena.hpp"

namespace ciranda {

class ArenaSession {
 public:
  using Counter = SharedArena::Counter;

  static constexpr std::uint64_t kParts = 4;

  explicit ArenaSession(SharedArena& arena) : arena_(arena) {}

  const SharedArena& arena() const { return arena_; }
  int n_members() const { return arena_.n_members(); }
  int member() const { return arena_.member(); }
  std::size_t slot_bytes() const { return arena_.slot_bytes(); }
  std::size_t part_bytes() const { return slot_bytes() / kParts; }
  // The bytes of each share if a slot is divided equally into n_shares: whole cache lines. 0: there are too many
  // shares.
  std::size_t share_bytes(int n_shares) const {
    constexpr std::size_t kLine = 64;
    return slot_bytes() / static_cast<std::size_t>(n_shares) / kLine * kLine;
  }
  std::size_t share_bytes() const { return share_bytes(n_members()); }
  std::byte* slot(int member, std::uint64_t chunk) const { return arena_.slot(member, chunk); }
  std::byte* own_slot(std::uint64_t chunk) const { return slot(member(), chunk); }
  std::byte* part_of_slot(int member, std::uint64_t part) const {
    return slot(member, part / kParts) + part % kParts * part_bytes();
  }

  // Takes the numbers of the next n_chunks chunks, and returns the first.
  std::uint64_t take(std::uint64_t n_chunks) {
    const std::uint64_t first = next_chunk_;
    next_chunk_ += n_chunks;
    return first;
  }

  bool is_slot_free(std::uint64_t chunk) const { return is_part_free(last_part(chunk)); }
  void publish(Counter which, std::uint64_t chunk) const { publish_part(which, last_part(chunk)); }
  bool has(int member, Counter which, std::uint64_t chunk) const { return has_part(member, which, last_part(chunk)); }
  bool have_all(Counter which, std::uint64_t chunk) const { return have_all_part(which, last_part(chunk)); }
  // The members that have not published `which` for the chunk.
  std::vector<int> lacking(Counter which, std::uint64_t chunk) const { return lacking_part(which, last_part(chunk)); }
  // The members that have not yet consumed the chunk that used this chunk's slot before.
  std::vector<int> holding_slot(std::uint64_t chunk) const { return holding_part(last_part(chunk)); }

  // The same for parts.
  static std::uint64_t first_part(std::uint64_t chunk) { return chunk * kParts; }
  static std::uint64_t last_part(std::uint64_t chunk) { return first_part(chunk) + kParts - 1; }
  bool is_part_free(std::uint64_t part) const {
    return part < kPartsInSlots || have_all_part(Counter::kConsumed, part - kPartsInSlots);
  }
  void publish_part(Counter which, std::uint64_t part) const {
    arena_.counter(member(), which).store(part + 1, std::memory_order_release);
  }
  bool has_part(int member, Counter which, std::uint64_t part) const {
    return arena_.counter(member, which).load(std::memory_order_acquire) > part;
  }
  std::vector<int> holding_part(std::uint64_t part) const {
    return part < kPartsInSlots ? std::vector<int>{} : lacking_part(Counter::kConsumed, part - kPartsInSlots);
  }

 private:
  static constexpr std::uint64_t kPartsInSlots = 2 * kParts;

  bool have_all_part(Counter which, std::uint64_t part) const {
    for (int member = 0; member < n_members(); ++member) {
      if (!has_part(member, which, part)) return false;
    }
    return true;
  }
  std::vector<int> lacking_part(Counter which, std::uint64_t part) const {
    std::vector<int> members;
    for (int member = 0; member < n_members(); ++member) {
      if (!has_part(member, which, part)) members.push_back(member);
    }
    return members;
  }

  SharedArena& arena_;
  std::uint64_t next_chunk_ = 0;
};

}  // namespace ciranda
