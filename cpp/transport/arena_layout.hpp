// ArenaLayout: the offsets of everything in a SharedArena.
//
// The common part, for m members: m doorbell lines, then m x kNumCounters counter lines, then kArrivals lines of
// arrivals. Then a part of whole pages for each member. The member allocates its part itself, so that the pages lie on
// its NUMA node. A part consists of a table of ranges, a stage, two slots of slot_bytes, an area for direct rounds, and
// (with two members) exchanged buffers; without slots it has no area and no buffers. Only the member writes to its
// table, stage and area. Others also write to its slots and buffers, once they have read its data there. Each counter
// has its own 128 bytes (two cache lines: the prefetcher fetches pairs). Called by Lane, LaneArena, ExchangedBuffers
// and SegmentLayout, and by SharedArena, which inherits it; pure.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/round_up.hpp"
#include "transport/shared_regions.hpp"

namespace ciranda {

class ArenaLayout {
 public:
  static constexpr std::size_t kNumCounters = 3;  // for each member: SharedArena::Counter
  static constexpr std::size_t kLineBytes = 128;
  static constexpr std::size_t kAlignment = 4096;
  static constexpr std::size_t kMaxRanges = 512;
  static constexpr std::size_t kStageBytes = 16 << 10;
  static constexpr std::size_t kArrivals = 512;

  // The size of an arena for n_members.
  static constexpr std::size_t required_bytes(int n_members, std::size_t slot_bytes) {
    return part(n_members, slot_bytes, n_members).offset;
  }
  // The common part, and a member's part.
  static constexpr ShmExtent common(int n_members) { return {0, common_bytes(n_members)}; }
  static constexpr ShmExtent part(int n_members, std::size_t slot_bytes, int member) {
    const std::size_t n_bytes =
        slots_at() + (slot_bytes == 0 ? 0 : 2 * slot_bytes + round_area_bytes(n_members) + buffers_bytes(n_members));
    return {common_bytes(n_members) + static_cast<std::size_t>(member) * n_bytes, n_bytes};
  }
  // The more members, the smaller their areas, so that all areas together stay within a budget.
  static constexpr std::size_t round_area_bytes(int n_members) {
    return std::clamp<std::size_t>(std::bit_floor((8U << 20) / static_cast<std::size_t>(n_members)), 64 << 10, 1 << 20);
  }

  // Buffers of two sizes for the contributions of two members to larger rounds (exchanged_buffers.hpp). There are so
  // many that, if a root uses all in turn, a buffer's lines have left the reader's second-level cache before its reuse.
  using Buffer = std::uint32_t;
  static constexpr bool has_buffers(int n_members) { return n_members == 2; }
  static constexpr std::size_t kSmallBuffers = 16;  // of each member
  static constexpr std::size_t kSmallBufferBytes = 128 << 10;
  static constexpr std::size_t kLargeBuffers = 4;
  static constexpr std::size_t kLargeBufferBytes = 1 << 20;
  static constexpr std::size_t kBuffers = kSmallBuffers + kLargeBuffers;
  static constexpr std::size_t kBuffersBytes = kSmallBuffers * kSmallBufferBytes + kLargeBuffers * kLargeBufferBytes;
  static constexpr bool is_small(Buffer buffer) { return buffer % kBuffers < kSmallBuffers; }

 protected:
  static constexpr std::size_t buffers_bytes(int n_members) { return has_buffers(n_members) ? kBuffersBytes : 0; }
  static constexpr std::size_t kTableBytes = kMaxRanges * sizeof(RegionRange) + kStageBytes;

  static constexpr std::size_t whole_pages(std::size_t n_bytes) { return round_up(n_bytes, kAlignment); }
  static constexpr std::size_t common_bytes(int n_members) {
    return whole_pages((static_cast<std::size_t>(n_members) * (1 + kNumCounters) + kArrivals) * kLineBytes);
  }
  // The offset of the slots in a part, behind the table and the stage.
  static constexpr std::size_t slots_at() { return whole_pages(kTableBytes); }
};

}  // namespace ciranda
