#include "observe/ticks.hpp"

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

}  // namespace ciranda
