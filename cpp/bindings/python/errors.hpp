// Converts the engine's Status to the exception classes of ciranda.errors. All functions but the last need the GIL.
// Called by CallBuilder, EngineHandle, LineProbe, log_watch.cc, OperationHandle, Session, stack_watch.cc,
// store_server.cc, tables.cc and TensorReader.
#pragma once

#include <string>

#include "base/status.hpp"

namespace ciranda::python {

// Throws the exception for the status. REQUIRES: !status.ok().
[[noreturn]] void raise(const Status& status);
// Throws the class of that name in ciranda.errors.
[[noreturn]] void raise_as(const std::string& name, const Status& status);

inline void raise_unless_ok(const Status& status) {
  if (!status.ok()) raise(status);
}

[[noreturn]] void raise_invalid_argument(std::string message);

// For waits without the GIL. On the main thread, the only one that runs signal handlers: takes the GIL and runs the
// handlers of pending signals. Returns true if a handler has raised; its exception must be rethrown after the wait. On
// other threads: returns is_detained().
bool gives_up_wait();

}  // namespace ciranda::python
