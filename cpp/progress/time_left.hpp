// How long until a deadline, if there is one.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

namespace ciranda {

inline std::optional<std::chrono::nanoseconds> time_to(
    const std::optional<std::chrono::steady_clock::time_point>& deadline) {
  if (!deadline) return std::nullopt;
  return std::max<std::chrono::nanoseconds>(*deadline - std::chrono::steady_clock::now(), std::chrono::nanoseconds(0));
}

// And no longer than `longest`.
inline std::chrono::nanoseconds at_most(std::chrono::nanoseconds longest,
                                        const std::optional<std::chrono::steady_clock::time_point>& deadline) {
  return std::min(longest, time_to(deadline).value_or(longest));
}

}  // namespace ciranda
