#include "observe/ticks.hpp"

#include <limits>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace ciranda {

namespace {

// True if the processor reports that its counter runs at a constant rate and never stops.
bool has_steady_counter() {
#if defined(__x86_64__)
  constexpr unsigned kPowerManagement = 0x80000007;
  constexpr unsigned kInvariantCounter = 1U << 8U;
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(kPowerManagement, &eax, &ebx, &ecx, &edx) != 0 && (edx & kInvariantCounter) != 0;
#else
  return false;
#endif
}

}  // namespace

const bool detail::kUsesCounter = has_steady_counter();

BothClocks both_clocks() {
  constexpr int kTries = 5;
  BothClocks best{};
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  for (int i = 0; i < kTries; ++i) {
    const std::uint64_t before = ticks();
    const std::int64_t now = monotonic_ns();
    const std::uint64_t took = ticks() - before;
    if (took >= least) continue;
    least = took;
    best = {before + took / 2, now};
  }
  return best;
}

namespace {

const BothClocks kAtLoad = both_clocks();

}  // namespace

double ns_per_tick() {
  constexpr std::int64_t kLeastNs = 100'000;
  if (!detail::kUsesCounter) return 1;
  BothClocks now = both_clocks();
  while (now.nanoseconds - kAtLoad.nanoseconds < kLeastNs) now = both_clocks();
  return static_cast<double>(now.nanoseconds - kAtLoad.nanoseconds) / static_cast<double>(now.ticks - kAtLoad.ticks);
}

}  // namespace ciranda
