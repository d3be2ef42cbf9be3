// guard: how functions of the C ABI return. No exception of the engine's code (only a lack of memory throws) leaves
// them. Functions that return no operation give the reason of a failure in a message.
// Called by context.cc, memory.cc, operation.cc and recording.cc; any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>

#include "ciranda/ciranda.h"

namespace ciranda::capi {

// Returns body()'s status, or CIRANDA_INTERNAL if it threw.
template <typename Body>
ciranda_status guarded(Body&& body) noexcept {
  try {
    return std::forward<Body>(body)();
  } catch (...) {
    return CIRANDA_INTERNAL;
  }
}

// Copies the text, cut to the capacity, with a NUL at its end.
inline void copy_message(std::string_view from, char* to, std::size_t capacity) {
  if (to == nullptr || capacity == 0) return;
  const std::size_t n_bytes = std::min(from.size(), capacity - 1);
  std::memcpy(to, from.data(), n_bytes);
  to[n_bytes] = '\0';
}

}  // namespace ciranda::capi
