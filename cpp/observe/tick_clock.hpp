// TickClock: from ticks to nanoseconds of the monotonic clock. Both clocks are read together now and then; in between,
// time is taken to pass evenly. What was translated once is never moved by what is read later, so order stays.
//
// One thread at a time.
#pragma once

#include <cstdint>
#include <deque>

namespace ciranda {

class TickClock {
 public:
  TickClock() { look(); }

  // Reads both clocks. REQUIRES, of nanoseconds(): a look after the ticks were.
  void look();
  // 0 stays 0: it never came.
  std::int64_t nanoseconds(std::uint64_t ticks) const;

 private:
  struct Pair {
    std::uint64_t ticks;
    std::int64_t nanoseconds;
  };
  // At ten looks a millisecond, more than any but the longest of calls takes.
  static constexpr std::size_t kMost = 4096;

  std::deque<Pair> pairs_;  // ascending; never empty
};

}  // namespace ciranda
