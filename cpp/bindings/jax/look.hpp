// look: the handlers of looks (ciranda/native/looks.hpp): they pass their arguments to Python's function as long as it
// wants them, which may wait for other ranks.
// Called by plugin.cc; XLA calls the handlers, on a thread of its own.
#pragma once

#include "bindings/jax/ffi.hpp"

namespace ciranda::jax {

ffi::Error* look(ffi::Frame* frame);

// Of a program for a GPU: Python gets copies in memory of the host, for which this waits.
ffi::Error* look_at_gpu(ffi::Frame* frame);

}  // namespace ciranda::jax
