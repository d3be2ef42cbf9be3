// Senders: which members of a host have written control messages for one of them since it last looked, a bit for each
// in memory that all have mapped. With many members it costs less to read these bits than to look at each one's ring.
//
// Called by SocketMesh, RingChannel and SegmentLayout. Threads: any, in any process; no lock. What a member wrote
// before note() is visible to whoever takes its bit.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/round_up.hpp"

namespace ciranda {

class Senders {
 public:
  static constexpr std::size_t kLineBytes = 128;

  // Zeroed memory is that nobody has written.
  static constexpr std::size_t required_bytes(std::size_t n_members) {
    return round_up((n_members + kBits - 1) / kBits * sizeof(Word), kLineBytes);
  }

  // REQUIRES: memory has required_bytes() and is aligned to kLineBytes.
  explicit Senders(std::span<std::byte> memory) : memory_(memory) {}

  void note(int member) const {
    word(static_cast<std::size_t>(member) / kBits).fetch_or(bit(member), std::memory_order_release);
  }

  // Calls `each` with every member that has been noted since the last call.
  template <typename Each>
  void take(const Each& each) const {
    for (std::size_t i = 0; i < memory_.size() / sizeof(Word); ++i) {
      if (word(i).load(std::memory_order_relaxed) == 0) continue;
      for (std::uint64_t bits = word(i).exchange(0, std::memory_order_acquire); bits != 0; bits &= bits - 1) {
        each(static_cast<int>(i * kBits) + std::countr_zero(bits));
      }
    }
  }

 private:
  using Word = std::atomic<std::uint64_t>;
  static_assert(Word::is_always_lock_free && sizeof(Word) == sizeof(std::uint64_t));
  static constexpr std::size_t kBits = 64;

  static std::uint64_t bit(int member) { return std::uint64_t{1} << static_cast<std::size_t>(member) % kBits; }
  Word& word(std::size_t i) const { return *reinterpret_cast<Word*>(memory_.data() + i * sizeof(Word)); }

  std::span<std::byte> memory_;
};

}  // namespace ciranda
