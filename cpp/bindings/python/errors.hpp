// From the engine's Status to the exception classes of ciranda.errors. All functions need the GIL.
#pragma once

#include <string>

#include "base/status.hpp"

namespace ciranda::python {

// Throws the exception that stands for the status. REQUIRES: !status.ok().
[[noreturn]] void raise(const Status& status);

inline void raise_unless_ok(const Status& status) {
  if (!status.ok()) raise(status);
}

[[noreturn]] void raise_invalid_argument(std::string message);

}  // namespace ciranda::python
