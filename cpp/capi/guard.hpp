// guard: nothing thrown by the engine's code (which can only be a want of memory) leaves the C ABI.
#pragma once

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

}  // namespace ciranda::capi
