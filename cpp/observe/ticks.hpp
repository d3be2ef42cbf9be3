// ticks(): the cheapest clock that all cores of this machine share, for stamps that cost less than what they time. Of
// no known unit: TickClock turns them into nanoseconds.
//
// The processor's counter where it runs at one speed and never stops (10 ns), else the system's monotonic clock.
#pragma once

#include <chrono>
#include <cstdint>

namespace ciranda {

namespace detail {
extern const bool kUsesCounter;
}

// Nanoseconds of the system's monotonic clock, which processes of a host share.
inline std::int64_t monotonic_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

// Never 0.
inline std::uint64_t ticks() {
#if defined(__x86_64__)
  if (detail::kUsesCounter) return __builtin_ia32_rdtsc();
#endif
  return static_cast<std::uint64_t>(monotonic_ns());
}

}  // namespace ciranda
