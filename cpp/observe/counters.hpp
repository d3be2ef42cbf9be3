// Counters: counts what this rank's calls do, always, in a CounterPage, which other processes read without asking this
// one.
//
// A call whose stages lack kSubmitted is the engine's own, and is not counted.
//
// Called by InFlight, RoundsInMemory, RoundsByMessages, LaneLog, StallDetector, and Lane through them, on one thread
// (the holder of the progress lock); is_due() and count_step() by Engine, which owns it in WorldParts, on any thread.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "call/op_table.hpp"
#include "observe/counter_page.hpp"
#include "observe/page_memory.hpp"
#include "observe/shown_calls.hpp"
#include "observe/stages.hpp"
#include "observe/ticks.hpp"

namespace ciranda {

class Counters {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // `path`: as for PageMemory.
  Counters(const std::string& path, int rank, int size);

  // Whether the stages of the next direct round without a wait are to be timed, which is so for every 61st.
  bool is_due(Collective collective) const { return load(n_direct_of(collective)) % kDirectPerTimed == 0; }
  // Counts such a round. `set`: as for count().
  void count_direct(Collective collective, std::size_t n_bytes, SetCounters* set) {
    CallCounters& counters = of(collective, n_bytes);
    add(n_direct_of(collective), 1);
    add(counters.direct, 1);
    add(counters.n_bytes, n_bytes);
    if (set == nullptr) return;
    add(set->n_calls, 1);
    add(set->n_bytes, n_bytes);
  }

  // Times such a round, which was due, for all until the next one, and shows it among the last calls.
  void time_direct(const ShownCalls::Call& call, const Stages& stages, SetCounters* set);

  // The counters of a process set, for one of its lanes; null if there is no room for another. REQUIRES: it is not the
  // world.
  SetCounters* of_set(std::uint32_t id);
  // The lane is gone. Those of a set without lanes stay until another needs their room. `set`: may be null.
  void leave_set(SetCounters* set);

  // For a call in flight, in this order: it begins to wait; the ranks have agreed on it (not called if they never do);
  // it is complete. begin_wait() returns its entry for the others. `set`: that of its process set, or null.
  std::uint16_t begin_wait(const ShownCalls::Call& call, const Stages& stages);
  void end_wait(std::uint16_t entry, std::uint64_t when);
  void count(Collective collective, std::size_t n_bytes, const Stages& stages, ErrorKind outcome, SetCounters* set);
  void end(std::uint16_t entry, const Stages& stages, ErrorKind outcome) {
    shown_.end(entry, stages.path, outcome, time_of(stages[Stage::kDone]));
  }

  // This rank has waited in a direct round for `rank`, the last to arrive. Times in ticks. Adds only the time that no
  // earlier wait has counted.
  void waited_for(int rank, std::uint64_t from, std::uint64_t until);
  // The same for calls that this rank coordinates: the first rank to report one has waited for `rank`, the last.
  void held_up_by(int rank, TimePoint from, TimePoint until);

  // The present state of a link.
  struct Link {
    std::uint64_t n_sent = 0;  // as LinkCounters
    std::uint64_t n_received = 0;
    std::uint64_t n_retries = 0;
    std::uint64_t n_queued = 0;
  };
  void note_link(int rank, const Link& link);
  void note_slots(std::size_t n_bytes) { store(own().slot_bytes, n_bytes); }
  // Any thread.
  void note_memory(std::size_t n_kept, std::size_t n_empty) {
    store(own().kept_bytes, n_kept);
    store(own().empty_bytes, n_empty);
  }

  void count_stall() { add(own().stalls, 1); }
  // Any thread: a step of the training has ended.
  void count_step();

  const CounterPage& page() const { return memory_.page(); }
  bool is_shared() const { return memory_.is_shared(); }

 private:
  // A prime: where a program repeats a few calls of different sizes, each is timed in its turn.
  static constexpr std::uint64_t kDirectPerTimed = 61;

  static std::uint64_t load(const CounterWord& word) { return word.load(std::memory_order_relaxed); }
  static void store(CounterWord& word, std::uint64_t value) { word.store(value, std::memory_order_relaxed); }
  // One thread at a time writes a counter, so it needs no atomic increment.
  static void add(CounterWord& word, std::uint64_t more) { store(word, load(word) + more); }

  CounterPage& own() { return memory_.page(); }
  void clear();
  CallCounters& of(Collective collective, std::size_t n_bytes) const {
    return memory_.page().calls[static_cast<std::size_t>(collective)][size_class(n_bytes)];
  }
  CounterWord& n_direct_of(Collective collective) const { return n_direct_[static_cast<std::size_t>(collective)]; }
  AlgorithmCounters* of(std::string_view algorithm);
  // Nanoseconds of the monotonic clock.
  std::uint64_t time_of(std::uint64_t when);
  std::int64_t in_nanoseconds(std::uint64_t ticks) const;
  std::uint64_t nanoseconds(std::uint64_t from, std::uint64_t until) const;
  // How long the two parts of a call took, in nanoseconds.
  struct Times {
    std::uint64_t agree;
    std::uint64_t move;
  };
  Times times_of(const Stages& stages) const;
  static void add_times(CallCounters& counters, SetCounters* set, const Times& times);

  PageMemory memory_;
  ShownCalls shown_;
  mutable std::array<CounterWord, kPageCollectives> n_direct_{};  // direct rounds without a wait, of all sizes
  std::vector<std::string_view> algorithms_;                      // of the page, in its order
  std::array<int, kPageSets> n_lanes_{};                          // of the sets of the page
  double ns_per_tick_;
  BothClocks clocks_ = both_clocks();
  std::uint64_t wait_began_ = 0;    // in ticks; valid while there is a call that waits
  std::uint64_t waited_until_ = 0;  // the end of the last wait that waited_for() has counted, in ticks
  TimePoint held_up_until_;         // likewise, of held_up_by()
};

}  // namespace ciranda
