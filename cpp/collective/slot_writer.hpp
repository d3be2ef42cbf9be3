// SlotWriter: copies into this rank's slots, past the caches where lines go to and fro between caches slowly.
//
// A slot's lines lie in the caches of those who have read it, and must be taken back to be written. Between cores that
// are near each other that is faster than memory. Where they are far apart (other dies, other processors; virtual cores
// may be moved there) it is several times slower, for whoever writes and for whoever reads (docs/performance.md). A
// rank notices by how long its own copies take, so these are timed. After a slow one the next pass by the caches, and
// now and then one does not, to see whether that is still so. No result depends on it.
//
// One thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <vector>

#include "base/copy_bytes.hpp"
#include "fuse/piece_list.hpp"

namespace ciranda {

class SlotWriter {
 public:
  // Pack: pieces -> slot.
  void gather(const InputPieces& pieces, std::size_t offset, std::span<std::byte> slot) {
    if (slot.size() < kLeastBytes) return ciranda::gather(pieces, offset, slot);
    if (passes_caches()) {
      --n_past_caches_;
      pieces.for_range(offset, slot.size(), [&](std::span<const std::byte> part, std::size_t at) {
        copy_past_caches(slot.data() + at, part.data(), part.size());
      });
      return;
    }
    const auto begin = std::chrono::steady_clock::now();
    ciranda::gather(pieces, offset, slot);
    took(slot.size(), std::chrono::steady_clock::now() - begin);
  }

  bool passes_caches() const { return n_past_caches_ > 0; }

  // Where to make what is then copied past the caches, a block at a time; empty where it is best made in the slot.
  std::span<std::byte> block_past_caches() {
    if (!passes_caches()) return {};
    block_.resize(kBlockBytes);
    return block_;
  }

  // How long a copy through the caches took.
  void took(std::size_t n_bytes, std::chrono::nanoseconds time) {
    const bool is_slow = static_cast<std::size_t>(time.count()) * kSlowBytesPerNs > n_bytes;
    n_past_caches_ = is_slow ? kPastCachesInARow : 0;
  }

 private:
  static constexpr std::size_t kLeastBytes = 16 << 10;  // below, the clock and the fence cost more than is won
  static constexpr std::size_t kSlowBytesPerNs = 4;     // seen: 2 in such times, 7 to 20 in others
  static constexpr int kPastCachesInARow = 31;

  static constexpr std::size_t kBlockBytes = 16 << 10;  // a multiple of every element's size; stays in the caches

  int n_past_caches_ = 0;
  std::vector<std::byte> block_;
};

}  // namespace ciranda
