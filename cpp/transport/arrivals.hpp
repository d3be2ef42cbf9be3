// Arrivals: an arrival counter, one word of shared memory. By it the members of an arena detect without messages that
// all have arrived at the same round of a name. Each member adds itself. When the last has done so, the round is
// *complete*, and each member may use all contributions. A member that will not arrive, or no longer waits, *closes*
// the round; then no member sees it as complete.
//
// Either all members see a round as complete, or all see it as closed: the word changes by compare and swap only, and a
// round that is complete cannot be closed. A word's rounds are numbered, in an order on which the members agree; the
// first member to touch a later round begins it. A member arrives at a round only after it has finished all earlier
// ones. So if the word shows a later round than the one at which a member arrived, that member's round was complete.
//
// All writes of a member before its arrival are visible to each member that sees the round as complete.
//
// Called by RoundsInMemory, and LaneLog for the limit; any thread, in any process that has the memory mapped.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/fetch_line.hpp"

namespace ciranda {

class Arrivals {
 public:
  static constexpr int kMaxMembers = (1 << 12) - 1;

  // REQUIRES: n_members <= kMaxMembers, the same for all.
  Arrivals(std::atomic<std::uint64_t>& word, int n_members)
      : word_(word), n_members_(static_cast<std::uint64_t>(n_members)) {}

  // Prefetches the cache line for writing while this member does something else, so that arrive() need not wait for it.
  void fetch() const { fetch_line(word_); }

  // This member arrives. False: the round is closed. REQUIRES: this member has not arrived at the round before.
  bool arrive(std::uint64_t round) {
    // Guesses that this member is the last. A load first would fetch the cache line twice, once for reading only.
    std::uint64_t seen = word(round) + (n_members_ - 1) * kOneMember;
    std::uint64_t next = 0;
    do {
      if (round_of(seen) == round && has_closed(seen)) return false;
      next = round_of(seen) == round ? seen + kOneMember : word(round) + kOneMember;
    } while (!word_.compare_exchange_weak(seen, next, std::memory_order_acq_rel, std::memory_order_acquire));
    return true;
  }

  // REQUIRES: this member has arrived at the round.
  bool is_complete(std::uint64_t round) const { return is_complete(word_.load(std::memory_order_acquire), round); }
  bool is_closed(std::uint64_t round) const {
    const std::uint64_t seen = word_.load(std::memory_order_acquire);
    return round_of(seen) == round && has_closed(seen);
  }

  // The number of members that have arrived at a round that is not closed.
  int n_arrived(std::uint64_t round) const {
    const std::uint64_t seen = word_.load(std::memory_order_acquire);
    return round_of(seen) == round ? static_cast<int>(n_in(seen)) : 0;
  }

  // False: the round is complete. REQUIRES: this member has finished all earlier rounds.
  bool close(std::uint64_t round) {
    std::uint64_t seen = word_.load(std::memory_order_acquire);
    std::uint64_t next = 0;
    do {
      if (is_complete(seen, round)) return false;
      next = (round_of(seen) == round ? seen : word(round)) | kClosed;
    } while (!word_.compare_exchange_weak(seen, next, std::memory_order_acq_rel, std::memory_order_acquire));
    return true;
  }

 private:
  // The fields of the word: the round's number, the number of arrivals, and whether the round is closed.
  static constexpr std::uint64_t kClosed = 1;
  static constexpr std::uint64_t kOneMember = 2;
  static constexpr int kRoundAt = 13;

  static std::uint64_t word(std::uint64_t round) { return round << kRoundAt; }
  static std::uint64_t round_of(std::uint64_t word) { return word >> kRoundAt; }
  static bool has_closed(std::uint64_t word) { return (word & kClosed) != 0; }
  static std::uint64_t n_in(std::uint64_t word) { return word % (1U << kRoundAt) / kOneMember; }
  bool is_complete(std::uint64_t word, std::uint64_t round) const {
    return round_of(word) > round || (round_of(word) == round && n_in(word) == n_members_);
  }

  std::atomic<std::uint64_t>& word_;
  std::uint64_t n_members_;
};

}  // namespace ciranda
