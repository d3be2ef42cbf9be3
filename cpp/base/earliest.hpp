// earliest: of two times that may not be, as deadlines are.
#pragma once

#include <algorithm>
#include <optional>
#include <type_traits>

namespace ciranda {

template <typename Time>
std::optional<Time> earliest(const std::optional<Time>& one, const std::type_identity_t<std::optional<Time>>& other) {
  if (!one || !other) return one ? one : other;
  return std::min(*one, *other);
}

}  // namespace ciranda
