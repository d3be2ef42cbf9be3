// Functions of optional times, such as deadlines.
// Called by agree/, engine/ and membership/; pure.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <type_traits>

namespace ciranda {

// The earlier of two times.
template <typename Time>
std::optional<Time> earliest(const std::optional<Time>& one, const std::type_identity_t<std::optional<Time>>& other) {
  if (!one || !other) return one ? one : other;
  return std::min(*one, *other);
}

// The duration until a time.
inline std::optional<std::chrono::nanoseconds> time_to(
    const std::optional<std::chrono::steady_clock::time_point>& deadline) {
  if (!deadline) return std::nullopt;
  return std::max<std::chrono::nanoseconds>(*deadline - std::chrono::steady_clock::now(), std::chrono::nanoseconds(0));
}

// The same, but no longer than `longest`.
inline std::chrono::nanoseconds at_most(std::chrono::nanoseconds longest,
                                        const std::optional<std::chrono::steady_clock::time_point>& deadline) {
  return std::min(longest, time_to(deadline).value_or(longest));
}

}  // namespace ciranda
