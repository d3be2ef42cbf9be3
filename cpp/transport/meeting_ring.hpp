// MeetingRing: where one of two members lays what it brings to larger meetings: one piece behind the other, around and
// around, whatever they belong to. What lay at a place before has long left the caches of the member that read it, and
// need not be taken back from there: with two places in turns, 64 KiB took 3.8 us to combine, and 2.7 so.
//
// A place is written again only once the other member has read what lies there. Each counts what it has read.
//
// One thread a member.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "transport/arena.hpp"

namespace ciranda {

class MeetingRing {
 public:
  using Unit = std::uint32_t;

  // Where to write so many bytes; none if the other has not read what lies there. REQUIRES, as below: the arena, always
  // the same, has rings; they have room for it.
  std::optional<Unit> take(const SharedArena& arena, std::size_t n_bytes) {
    const std::size_t n_units = units(n_bytes);
    const std::size_t first = next_ + n_units > SharedArena::kRingUnits ? 0 : next_;
    for (std::size_t unit = first; unit < first + n_units; ++unit) {
      if (arena.n_ring_reads(1 - arena.member(), unit).load(std::memory_order_acquire) != n_written_[unit]) return {};
    }
    for (std::size_t unit = first; unit < first + n_units; ++unit) ++n_written_[unit];
    next_ = first + n_units;
    return static_cast<Unit>(first);
  }

  // The other will not read it. REQUIRES: it was taken.
  void give_back(Unit first, std::size_t n_bytes) {
    for (std::size_t unit = first; unit < first + units(n_bytes); ++unit) --n_written_[unit];
  }

  // This member has read what the other wrote there.
  static void note_read(const SharedArena& arena, Unit first, std::size_t n_bytes) {
    for (std::size_t unit = first; unit < first + units(n_bytes); ++unit) {
      std::atomic<std::uint32_t>& n_reads = arena.n_ring_reads(arena.member(), unit);
      n_reads.store(n_reads.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }
  }

 private:
  static std::size_t units(std::size_t n_bytes) {
    return (n_bytes + SharedArena::kRingUnitBytes - 1) / SharedArena::kRingUnitBytes;
  }

  std::array<std::uint32_t, SharedArena::kRingUnits> n_written_{};
  std::size_t next_ = 0;
};

}  // namespace ciranda
