// Times that may not be, as deadlines are.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <type_traits>

namespace ciranda {

// The earlier of two.
template <typename Time>
std::optional<Time> earliest(const std::optional<Time>& one, const std::type_identity_t<std::optional<Time>>& other) {
  if (!one || !other) return one ? one : other;
  return std::min(*one, *other);
}

// How long until it comes.
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
