// Arrivals: how the members of an arena find out, without asking anybody, that all of them have come to the same round
// of a name. It is one word of shared memory. Whoever comes adds itself; with the last one the round is *met*, and each
// member may go on with what all of them contributed. Whoever will not come by this way, or waits no longer, *closes*
// the round: it is then met for nobody.
//
// Either all members see a round as met, or all see it as closed: the word changes by compare and swap only, and a
// round that is met cannot be closed. Rounds of a word are numbered, in an order on which the members agree; the first
// to touch a later one begins it. A member comes to a round only after it has done with all earlier ones, so a word
// that is at a later round than a member which came says that that member's was met.
//
// What a member has written before it comes is visible to all that see the round met.
//
// Threads: any, in any process that has the memory mapped.
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

  // Has the line fetched for writing while this member does something else: come() then finds it here.
  void fetch() const { fetch_line(word_); }

  // False: the round is closed. REQUIRES: this member has not come to the round before.
  bool come(std::uint64_t round) {
    // A guess: this is the last. To look first would fetch the cache line twice, once for reading only.
    std::uint64_t seen = word(round) + (n_members_ - 1) * kOneMember;
    std::uint64_t next = 0;
    do {
      if (round_of(seen) == round && has_closed(seen)) return false;
      next = round_of(seen) == round ? seen + kOneMember : word(round) + kOneMember;
    } while (!word_.compare_exchange_weak(seen, next, std::memory_order_acq_rel, std::memory_order_acquire));
    return true;
  }

  // REQUIRES: this member has come to the round.
  bool is_met(std::uint64_t round) const { return is_met(word_.load(std::memory_order_acquire), round); }
  bool is_closed(std::uint64_t round) const {
    const std::uint64_t seen = word_.load(std::memory_order_acquire);
    return round_of(seen) == round && has_closed(seen);
  }

  // How many have come, to a round that nobody closed.
  int n_come(std::uint64_t round) const {
    const std::uint64_t seen = word_.load(std::memory_order_acquire);
    return round_of(seen) == round ? static_cast<int>(n_in(seen)) : 0;
  }

  // False: it is met. REQUIRES: this member has done with all rounds before.
  bool close(std::uint64_t round) {
    std::uint64_t seen = word_.load(std::memory_order_acquire);
    std::uint64_t next = 0;
    do {
      if (is_met(seen, round)) return false;
      next = (round_of(seen) == round ? seen : word(round)) | kClosed;
    } while (!word_.compare_exchange_weak(seen, next, std::memory_order_acq_rel, std::memory_order_acquire));
    return true;
  }

 private:
  // A word: the round's number, how many have come, and whether it is closed.
  static constexpr std::uint64_t kClosed = 1;
  static constexpr std::uint64_t kOneMember = 2;
  static constexpr int kRoundAt = 13;

  static std::uint64_t word(std::uint64_t round) { return round << kRoundAt; }
  static std::uint64_t round_of(std::uint64_t word) { return word >> kRoundAt; }
  static bool has_closed(std::uint64_t word) { return (word & kClosed) != 0; }
  static std::uint64_t n_in(std::uint64_t word) { return word % (1U << kRoundAt) / kOneMember; }
  bool is_met(std::uint64_t word, std::uint64_t round) const {
    return round_of(word) > round || (round_of(word) == round && n_in(word) == n_members_);
  }

  std::atomic<std::uint64_t>& word_;
  std::uint64_t n_members_;
};

}  // namespace ciranda
