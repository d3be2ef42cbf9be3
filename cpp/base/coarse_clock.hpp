// The time of std::chrono::steady_clock at the kernel's last tick, up to some milliseconds ago. Reading it takes a
// tenth of the time. For durations that messages give in seconds.
// Called by LaneLog; any thread.
#pragma once

#include <time.h>

#include <chrono>

namespace ciranda {

inline std::chrono::steady_clock::time_point coarse_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return std::chrono::steady_clock::time_point(std::chrono::seconds(now.tv_sec) +
                                               std::chrono::nanoseconds(now.tv_nsec));
}

}  // namespace ciranda
