// SharedArena: memory that all ranks of one host have mapped (arena_layout.hpp), with the counters that synchronize the
// hand-over of chunks. Every counter has one writer. Counters only grow, so collectives reset nothing. The arena does
// not own its memory (a mapping or a test's buffer does). Called by ArenaSession, RegionPieces, NativeBackend,
// RoundMemory, RoundsInMemory, ExchangedBuffers and ProgressLoop, under the progress lock; probe_pairs() and
// join_world(), while ranks connect; made by SegmentLayout, LaneArena and SocketMesh; given by Mesh; Engine and
// WorldParts read counts, on any thread. Engine and ProgressLoop use regions(), probe_pairs() uses slots as ranks
// connect.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transport/arena_layout.hpp"
#include "transport/shared_regions.hpp"

namespace ciranda {

class SharedArena : public ArenaLayout {
 public:
  // A member's progress, in parts of chunks (ArenaSession). Chunks are counted from the arena's creation; chunk k is in
  // slot k % 2.
  enum class Counter : std::uint8_t {
    kPacked,    // this member's part of chunk k is in its slot
    kReduced,   // this member's slice of chunk k is reduced
    kConsumed,  // this member has read all that it needs of chunk k
  };

  // REQUIRES: memory is zeroed when the first member attaches, aligned to kAlignment, and at least required_bytes()
  // long; slot_bytes is a multiple of kAlignment; member in [0, n_members).
  SharedArena(std::span<std::byte> memory, int n_members, int member, std::size_t slot_bytes)
      : memory_(memory),
        parts_at_(memory.data() + common_bytes(n_members)),
        part_bytes_(part(n_members, slot_bytes, member).n_bytes),
        n_members_(n_members),
        member_(member),
        slot_bytes_(slot_bytes) {}

  // Further memory that members have mapped of each other. All copies of this object share it.
  SharedRegions& regions() const { return *regions_; }
  std::shared_ptr<SharedRegions> shared_regions() const { return regions_; }

  int n_members() const { return n_members_; }
  int member() const { return member_; }
  std::size_t slot_bytes() const { return slot_bytes_; }
  // Of this member's part: slots, rounds and buffers. Pages that were never used take no memory.
  std::size_t part_bytes() const { return part_bytes_; }

  std::byte* slot(int member, std::uint64_t chunk) const {
    return part_of(member) + slots_at() + static_cast<std::size_t>(chunk % 2) * slot_bytes_;
  }

  std::atomic<std::uint64_t>& counter(int member, Counter which) const {
    const auto index = static_cast<std::size_t>(member) * kNumCounters + static_cast<std::size_t>(which);
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(line(static_cast<std::size_t>(n_members_) + index));
  }

  // 0 while the member is awake, else its Sleeper (mesh.hpp). Written by the member (arm, disarm) and by a rank that
  // wakes it.
  std::atomic<std::uint32_t>& doorbell(int member) const {
    return *reinterpret_cast<std::atomic<std::uint32_t>*>(line(static_cast<std::size_t>(member)));
  }

  // The ranges of the member's part of the current collective, if that part lies in its regions. The member writes both
  // before it publishes kPacked. The number of ranges is in that counter's cache line, so reading it costs nothing.
  std::uint64_t& n_ranges(int member) const {
    const auto packed = static_cast<std::size_t>(member) * kNumCounters + static_cast<std::size_t>(Counter::kPacked);
    return *reinterpret_cast<std::uint64_t*>(line(static_cast<std::size_t>(n_members_) + packed) +
                                             sizeof(std::uint64_t));
  }
  std::span<RegionRange, kMaxRanges> ranges(int member) const {
    return std::span<RegionRange, kMaxRanges>(reinterpret_cast<RegionRange*>(part_of(member)), kMaxRanges);
  }
  // Memory for small parts of the same collective that lie in no region.
  std::span<std::byte, kStageBytes> stage(int member) const {
    return std::span<std::byte, kStageBytes>(part_of(member) + kMaxRanges * sizeof(RegionRange), kStageBytes);
  }

  // The word that counts the arrivals at a direct round (arrivals.hpp).
  std::atomic<std::uint64_t>& arrivals(std::size_t number) const {
    const std::size_t first = static_cast<std::size_t>(n_members_) * (1 + kNumCounters);
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(line(first + number));
  }
  // The rest of that word's cache line.
  static constexpr std::size_t kBesideArrivalsBytes = 64 - sizeof(std::uint64_t);
  std::byte* beside_arrivals(std::size_t number) const {
    return reinterpret_cast<std::byte*>(&arrivals(number)) + sizeof(std::uint64_t);
  }
  // A member's memory for its contributions to all direct rounds.
  std::span<std::byte> round_area(int member) const {
    return {part_of(member) + slots_at() + 2 * slot_bytes_, round_area_bytes(n_members_)};
  }

  // The buffers in this member's part. REQUIRES: the part has more than i of that size.
  Buffer small_buffer(std::size_t i) const {
    return static_cast<Buffer>(static_cast<std::size_t>(member_) * kBuffers + i);
  }
  Buffer large_buffer(std::size_t i) const { return static_cast<Buffer>(small_buffer(0) + kSmallBuffers + i); }
  std::byte* buffer(Buffer buffer) const {
    std::byte* first =
        part_of(static_cast<int>(buffer / kBuffers)) + slots_at() + 2 * slot_bytes_ + round_area_bytes(n_members_);
    const std::size_t i = buffer % kBuffers;
    if (is_small(buffer)) return first + i * kSmallBufferBytes;
    return first + kSmallBuffers * kSmallBufferBytes + (i - kSmallBuffers) * kLargeBufferBytes;
  }

 private:
  std::byte* part_of(int member) const { return parts_at_ + static_cast<std::size_t>(member) * part_bytes_; }
  std::byte* line(std::size_t index) const { return memory_.data() + index * kLineBytes; }

  std::span<std::byte> memory_;
  std::byte* parts_at_;
  std::size_t part_bytes_;
  int n_members_;
  int member_;
  std::size_t slot_bytes_;
  std::shared_ptr<SharedRegions> regions_ = std::make_shared<SharedRegions>();
};

}  // namespace ciranda
