// Absences: which ranks of a host have left their mesh, or have ended, in memory that all of them have mapped. So each
// sees the end of all others through connections to a few.
//
// Called by SocketMesh, SegmentLayout and announce_end(). Threads: any, in any process; no lock. A member is noted
// once: by itself as it leaves, or by a rank that has seen its process end. What it wrote to shared memory before it
// noted itself is visible to whoever reads its place.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ciranda {

class Absences {
 public:
  // Zeroed memory is a host of which all ranks are there.
  static constexpr std::size_t required_bytes(int n_members) {
    return kPlacesAt + static_cast<std::size_t>(n_members) * sizeof(Word);
  }

  Absences() = default;
  // REQUIRES: memory has required_bytes(), is zeroed or in use, and is aligned as a word.
  explicit Absences(std::span<std::byte> memory) : memory_(memory) {}

  void note(int member) const {
    std::uint32_t none = 0;
    const std::uint32_t next = word(kNextAt).fetch_add(1, std::memory_order_relaxed) + 1;
    // The number changes only afterwards, so whoever sees the new number sees the place too.
    if (place(member).compare_exchange_strong(none, next, std::memory_order_acq_rel)) {
      word(kNumberAt).fetch_add(1, std::memory_order_release);
    }
  }
  // How many members have been noted.
  std::uint32_t number() const { return word(kNumberAt).load(std::memory_order_acquire); }
  // 0: the member is there. Else the later it was noted, the greater.
  std::uint32_t place_of(int member) const { return place(member).load(std::memory_order_acquire); }

 private:
  using Word = std::atomic<std::uint32_t>;
  static_assert(Word::is_always_lock_free && sizeof(Word) == sizeof(std::uint32_t));
  static constexpr std::size_t kNumberAt = 0;
  static constexpr std::size_t kNextAt = sizeof(Word);
  static constexpr std::size_t kPlacesAt = 2 * sizeof(Word);

  Word& word(std::size_t at) const { return *reinterpret_cast<Word*>(memory_.data() + at); }
  Word& place(int member) const { return word(kPlacesAt + static_cast<std::size_t>(member) * sizeof(Word)); }

  std::span<std::byte> memory_;
};

}  // namespace ciranda
