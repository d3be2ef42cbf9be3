// guard: how functions of the C ABI end. Nothing thrown by the engine's code (which can only be a want of memory)
// leaves them, and those that give no operation say by a message why they failed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>

#include "ciranda/ciranda.h"

namespace ciranda::capi {

// body()'s status, or CIRANDA_INTERNAL if it threw.
template <typename Body>
ciranda_status guarded(Body&& body) noexcept {
  try {
    return std::forward<Body>(body)();
  } catch (...) {
    return CIRANDA_INTERNAL;
  }
}

// Cut to the capacity, with a NUL at its end.
inline void copy_message(std::string_view from, char* to, std::size_t capacity) {
  if (to == nullptr || capacity == 0) return;
  const std::size_t n_bytes = std::min(from.size(), capacity - 1);
  std::memcpy(to, from.data(), n_bytes);
  to[n_bytes] = '\0';
}

}  // namespace ciranda::capi
