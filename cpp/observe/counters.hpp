// Counters: counts what this rank's calls do, always, in a CounterPage, which other processes read without asking this
// one.
//
// A call whose stages lack kSubmitted is the engine's own, and is not counted.
//
// Called by InFlight, RoundsInMemory, RoundsByMessages, LaneLog, StallDetector, and Lane through them, on one thread
// (the holder of the progress lock); is_due() and count_step() by Engine, which owns it in WorldParts, on any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.hpp"
#include "call/op_table.hpp"
#include "observe/counter_page.hpp"
#include "observe/page_memory.hpp"
#include "observe/stages.hpp"
#include "observe/ticks.hpp"

namespace ciranda {

class Counters {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // `path`: as for PageMemory.
  Counters(const std::string& path, int rank, int size);

  // Whether the stages of the next direct round without a wait are to be timed, which is so for every 64th.
  bool is_due(Collective collective) const { return load(of(collective).direct) % kDirectPerTimed == 0; }
  // Such a round. `stages`: null if it was not timed.
  void count_direct(Collective collective, std::size_t n_bytes, const Stages* stages) {
    CollectiveCounters& counters = of(collective);
    if (stages != nullptr && is_due(collective)) add_times(counters, *stages, kDirectPerTimed);
    add(counters.direct, 1);
    add(counters.n_bytes, n_bytes);
  }

  // A call that is in flight: it begins to wait, the ranks agree on it (which fails, or is skipped, if it has never
  // been agreed on), and it is complete.
  void begin_wait(const Stages& stages);
  void end_wait(std::uint64_t when);
  void count(Collective collective, std::size_t n_bytes, const Stages& stages, ErrorKind outcome);

  // This rank has waited in a direct round, in ticks; `rank` came last. Only what no earlier wait has counted is added.
  void waited_for(int rank, std::uint64_t from, std::uint64_t until);
  // As above, of the first rank to report a call to this one, its coordinator.
  void held_up_by(int rank, TimePoint from, TimePoint until);

  void count_stall() { add(own().stalls, 1); }
  // Any thread: a step of the training has ended.
  void count_step();

  const CounterPage& page() const { return memory_.page(); }
  bool is_shared() const { return memory_.is_shared(); }

 private:
  static constexpr std::uint64_t kDirectPerTimed = 64;

  static std::uint64_t load(const CounterWord& word) { return word.load(std::memory_order_relaxed); }
  static void store(CounterWord& word, std::uint64_t value) { word.store(value, std::memory_order_relaxed); }
  // One thread at a time writes a counter, so it needs no atomic increment.
  static void add(CounterWord& word, std::uint64_t more) { store(word, load(word) + more); }

  CounterPage& own() { return memory_.page(); }
  void clear();
  CollectiveCounters& of(Collective collective) const {
    return memory_.page().collectives[static_cast<std::size_t>(collective)];
  }
  std::uint64_t time_of(std::uint64_t when);
  std::uint64_t nanoseconds(std::uint64_t from, std::uint64_t until) const;
  void add_times(CollectiveCounters& counters, const Stages& stages, std::uint64_t times) const;

  PageMemory memory_;
  double ns_per_tick_;
  BothClocks clocks_ = both_clocks();
  std::uint64_t wait_began_ = 0;    // in ticks; valid while there is a call that waits
  std::uint64_t waited_until_ = 0;  // the end of the last wait that waited_for() has counted, in ticks
  TimePoint held_up_until_;         // likewise, of held_up_by()
};

}  // namespace ciranda
