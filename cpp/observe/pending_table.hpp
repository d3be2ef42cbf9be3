// PendingTable: the calls of this rank that have not ended, on its CounterPage: who reads the page sees what a rank
// that is stopped, stuck or dead is in. Direct rounds are there once they wait.
//
// The entry of a call is written once, marked when the ranks have agreed on it, and freed at its end. Readers take no
// lock: they refuse an entry that is being written (counter_page.hpp).
//
// Called by Counters, which owns it, and InFlight through it; Submission keeps the number of an entry. One thread (the
// holder of the progress lock).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "call/op_table.hpp"
#include "observe/counter_page.hpp"

namespace ciranda {

class PendingTable {
 public:
  // Of a call that has no entry: there were too many, or it is the engine's own.
  static constexpr std::uint16_t kNoEntry = 0xffff;

  struct Call {
    std::string_view name;
    Collective collective;
    std::uint32_t process_set;
    std::uint32_t lane;
    std::uint64_t n_bytes;
  };

  // Forgets the calls of an earlier world. `page` outlives this.
  explicit PendingTable(CounterPage& page);

  // Returns the number of the entry, or kNoEntry. Every call needs a remove() with it.
  std::uint16_t add(const Call& call, std::uint64_t since_ns);
  // The ranks have agreed on it.
  void agree(std::uint16_t entry, std::uint64_t when_ns);
  void remove(std::uint16_t entry);

 private:
  CounterPage& page_;
  std::array<std::uint16_t, kPagePending> free_{};  // the last one is used next, so that its cache lines are at hand
  std::size_t n_free_ = kPagePending;
};

}  // namespace ciranda
