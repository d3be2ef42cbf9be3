// ShownCalls: the calls of this rank that have not ended, and the last ones that have, on its CounterPage: who reads
// the page sees what a rank that is stopped, stuck or dead is in, and what it did before. Direct rounds are there once
// they wait; of those without a wait, one of many is, which has ended.
//
// The entry of a call is written once, and marked when the ranks have agreed on it, and at its end. It stays until
// another call takes its place: the entry of the call that has ended first, so the last kPageEnded ones are kept,
// unless more calls are in flight than there is room for. Readers take no lock: they refuse an entry that is being
// written (counter_page.hpp).
//
// Called by Counters, which owns it, and InFlight through it; Submission keeps the number of an entry. One thread (the
// holder of the progress lock).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/status.hpp"
#include "call/op_table.hpp"
#include "observe/counter_page.hpp"
#include "observe/put_words.hpp"
#include "observe/stages.hpp"

namespace ciranda {

class ShownCalls {
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
  explicit ShownCalls(CounterPage& page);

  // Returns the number of the entry, or kNoEntry. Every call needs an end() with it.
  std::uint16_t add(const Call& call, std::uint64_t since_ns);
  // The ranks have agreed on it.
  void agree(std::uint16_t entry) {
    if (entry == kNoEntry) return;
    CounterWord& kind = page_.shown[entry].kind;
    put(kind, load(kind) | kShownAgreed);
  }
  void end(std::uint16_t entry, Path path, ErrorKind outcome, std::uint64_t when_ns) {
    put(page_.n_in_flight, load(page_.n_in_flight) - 1);
    if (entry == kNoEntry) return;
    ShownCall& call = page_.shown[entry];
    put(call.kind,
        load(call.kind) | static_cast<std::uint64_t>(outcome) << 8U | static_cast<std::uint64_t>(path) << 16U);
    put(call.ended_ns, when_ns);
    ended_[(first_ended_ + n_ended_++) % kPageShown] = entry;
  }

 private:
  static std::uint64_t load(const CounterWord& word) { return word.load(std::memory_order_relaxed); }
  std::uint16_t take();

  CounterPage& page_;
  std::array<std::uint16_t, kPageShown> ended_{};  // a ring: the entries of calls that have ended, in their order
  std::size_t first_ended_ = 0;
  std::size_t n_ended_ = 0;
};

}  // namespace ciranda
