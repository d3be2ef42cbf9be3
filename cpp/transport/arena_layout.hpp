// ArenaLayout: what lies where in a SharedArena.
//
// For m members: m doorbell lines, then m x kNumCounters counter lines, then kArrivals lines of arrivals: what is
// common. Then a part for each member, of whole pages, which that member is to allocate, so that they lie in memory
// that is near it: its table of places and its stage, two slots of slot_bytes, its area for direct rounds, and the
// buffers of one of two members (where there are no slots, there are no areas and no buffers either). It alone writes
// to its table, stage and area; its slots and buffers others write to as well, once they have read what it has written
// there. Each counter has its own 128 bytes (two cache lines: the prefetcher fetches pairs).
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
  static constexpr std::size_t kNumCounters = 3;  // of a member: SharedArena::Counter
  static constexpr std::size_t kLineBytes = 128;
  static constexpr std::size_t kAlignment = 4096;
  static constexpr std::size_t kMaxPlaces = 512;
  static constexpr std::size_t kStageBytes = 16 << 10;
  static constexpr std::size_t kArrivals = 512;

  // The bytes an arena for n_members needs.
  static constexpr std::size_t required_bytes(int n_members, std::size_t slot_bytes) {
    return part(n_members, slot_bytes, n_members).offset;
  }
  // What is common, and a member's part.
  static constexpr ShmExtent common(int n_members) { return {0, common_bytes(n_members)}; }
  static constexpr ShmExtent part(int n_members, std::size_t slot_bytes, int member) {
    const std::size_t n_bytes =
        slots_at() + (slot_bytes == 0 ? 0 : 2 * slot_bytes + round_area_bytes(n_members) + buffers_bytes(n_members));
    return {common_bytes(n_members) + static_cast<std::size_t>(member) * n_bytes, n_bytes};
  }
  // Areas shrink as members grow in number, so that all of them together stay within a budget.
  static constexpr std::size_t round_area_bytes(int n_members) {
    return std::clamp<std::size_t>(std::bit_floor((8U << 20) / static_cast<std::size_t>(n_members)), 64 << 10, 1 << 20);
  }

  // Memory for what two members contribute to larger rounds, of two sizes (exchanged_buffers.hpp). As many as that a
  // root which uses all in turn comes back to one when its lines have left the reader's second-level cache.
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
  static constexpr std::size_t kTableBytes = kMaxPlaces * sizeof(RegionPlace) + kStageBytes;

  static constexpr std::size_t whole_pages(std::size_t n_bytes) { return round_up(n_bytes, kAlignment); }
  static constexpr std::size_t common_bytes(int n_members) {
    return whole_pages((static_cast<std::size_t>(n_members) * (1 + kNumCounters) + kArrivals) * kLineBytes);
  }
  // In a part, behind the table and the stage.
  static constexpr std::size_t slots_at() { return whole_pages(kTableBytes); }
};

}  // namespace ciranda
