// The time of std::chrono::steady_clock as of the kernel's last tick, some milliseconds ago: to read it takes a tenth
// as long. For what people are told in seconds.
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
