// SegmentLayout: the offsets of everything in the memory that the ranks of one host share. Pure arithmetic.
//
//   probe lines (one a member, and one of the creator), absences  |  arena  |  for each member, a control and a data
//   ring to each of the others, and its senders
//
// Each member allocates its own part, so that the part lies in the memory of the member's NUMA node. Each member's
// rings, and its part of the arena, begin on a page of their own.
//
// Called by SocketMesh, join_world() and probe_shared_memory(); a plain value.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <span>
#include <vector>

#include "base/round_up.hpp"
#include "transport/absences.hpp"
#include "transport/arena.hpp"
#include "transport/ring.hpp"
#include "transport/senders.hpp"

namespace ciranda {

class SegmentLayout {
 public:
  static constexpr std::size_t kProbeBytes = 32;

  // slot_bytes 0: the arena has no slots and is used for its doorbells only.
  SegmentLayout(int n_members, std::size_t slot_bytes)
      : n_members_(static_cast<std::size_t>(n_members)),
        slot_bytes_(slot_bytes),
        control_bytes_(share_of(4 << 20, 4096, 64 << 10)),
        data_bytes_(share_of(16 << 20, 16 << 10, 512 << 10)) {}

  int n_members() const { return static_cast<int>(n_members_); }
  std::size_t slot_bytes() const { return slot_bytes_; }
  std::size_t control_bytes() const { return control_bytes_; }
  std::size_t data_bytes() const { return data_bytes_; }

  std::size_t n_bytes() const { return rings_at() + n_members_ * row_bytes(); }

  // The ranges that a member must allocate: its part of the arena and its rings, and for member 0 the common part.
  std::vector<ShmExtent> owned_by(int member) const {
    const auto n = static_cast<int>(n_members_);
    const ShmExtent part = SharedArena::part(n, slot_bytes_, member);
    std::vector<ShmExtent> owned{{arena_at() + part.offset, part.n_bytes},
                                 {rings_at() + static_cast<std::size_t>(member) * row_bytes(), row_bytes()}};
    if (member == 0) owned.push_back({0, arena_at() + SharedArena::common(n).n_bytes});
    return owned;
  }

  // Index n_members() is the line of the segment's creator.
  std::span<std::byte> probe(std::span<std::byte> segment, int index) const {
    return segment.subspan(static_cast<std::size_t>(index) * kProbeBytes, kProbeBytes);
  }
  Absences absences(std::span<std::byte> segment) const {
    return Absences(segment.subspan(absences_at(), Absences::required_bytes(n_members())));
  }
  SharedArena arena(std::span<std::byte> segment, int member) const {
    return {segment.subspan(arena_at(), arena_bytes()), static_cast<int>(n_members_), member, slot_bytes_};
  }
  ByteRing control_ring(std::span<std::byte> segment, int from, int to) const {
    return ByteRing(segment.subspan(pair_at(from, to), ByteRing::required_bytes(control_bytes_)));
  }
  ByteRing data_ring(std::span<std::byte> segment, int from, int to) const {
    const std::size_t at = pair_at(from, to) + ByteRing::required_bytes(control_bytes_);
    return ByteRing(segment.subspan(at, ByteRing::required_bytes(data_bytes_)));
  }
  // Who has written to this member's control rings.
  Senders senders(std::span<std::byte> segment, int member) const {
    const std::size_t row_end = rings_at() + (static_cast<std::size_t>(member) + 1) * row_bytes();
    return Senders(segment.subspan(row_end - senders_bytes(), senders_bytes()));
  }

 private:
  static constexpr std::size_t whole_pages(std::size_t n_bytes) { return round_up(n_bytes, SharedArena::kAlignment); }
  // The more ranks, the smaller the rings, so that all together stay within the budget; but never below `lowest`.
  std::size_t share_of(std::size_t budget, std::size_t lowest, std::size_t highest) const {
    const std::size_t n_pairs = std::max<std::size_t>(1, n_members_ * (n_members_ - 1));
    return std::clamp(std::bit_floor(budget / n_pairs), lowest, highest);
  }
  std::size_t absences_at() const { return (n_members_ + 1) * kProbeBytes; }
  std::size_t arena_at() const { return whole_pages(absences_at() + Absences::required_bytes(n_members())); }
  std::size_t arena_bytes() const {
    return whole_pages(SharedArena::required_bytes(static_cast<int>(n_members_), slot_bytes_));
  }
  std::size_t rings_at() const { return arena_at() + arena_bytes(); }
  std::size_t pair_bytes() const {
    return ByteRing::required_bytes(control_bytes_) + ByteRing::required_bytes(data_bytes_);
  }
  std::size_t senders_bytes() const { return Senders::required_bytes(n_members_); }
  std::size_t row_bytes() const { return whole_pages((n_members_ - 1) * pair_bytes() + senders_bytes()); }
  // The offset of a pair's rings. Member `from` has n - 1 such pairs, in the order of `to`; none with itself.
  std::size_t pair_at(int from, int to) const {
    const auto column = static_cast<std::size_t>(to < from ? to : to - 1);
    return rings_at() + static_cast<std::size_t>(from) * row_bytes() + column * pair_bytes();
  }

  std::size_t n_members_;
  std::size_t slot_bytes_;
  std::size_t control_bytes_;
  std::size_t data_bytes_;
};

}  // namespace ciranda
