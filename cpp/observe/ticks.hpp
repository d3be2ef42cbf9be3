// ticks(): the cheapest clock that all cores of this machine share, for the time stamps of short operations. Its unit
// is unknown: TickClock converts it to nanoseconds.
//
// It is the processor's counter (10 ns a read) if that runs at a constant rate and never stops, as it always does on
// ARM, else the system's monotonic clock. Called by Stages, Recorder, Recording, CallLog, Counters, Timeline, InFlight,
// Lane, LaneLog, RoundsInMemory and RoundsByMessages; any thread.
#pragma once

#include <chrono>
#include <cstdint>

namespace ciranda {

namespace detail {
extern const bool kUsesCounter;
}

// Nanoseconds of the system's monotonic clock, which all processes of a host share.
inline std::int64_t monotonic_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

// Never 0.
inline std::uint64_t ticks() {
#if defined(__x86_64__)
  if (detail::kUsesCounter) return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  std::uint64_t count = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(count));  // NOLINT(hicpp-no-assembler): no function of the compiler reads it
  return count;
#endif
  return static_cast<std::uint64_t>(monotonic_ns());
}

// Both clocks, read at the same time. The thread may be preempted between two reads, so this is the closest of a few
// pairs.
struct BothClocks {
  std::uint64_t ticks;
  std::int64_t nanoseconds;
};
BothClocks both_clocks();

// How long a tick is, to convert durations. Measured since the library was loaded, for 100 us at least.
double ns_per_tick();

}  // namespace ciranda
