// handler: the common start of every handler.
// Called by collective.hpp, gpu_collective.hpp and look.hpp; any thread.
#pragma once

#include "bindings/jax/ffi.hpp"

namespace ciranda::jax {

// Returns true if XLA only queries the handler's version, as it does once, when the handler is registered. The query is
// then answered: with XLA's own version, if its table has all functions that are used here; otherwise with a version
// that XLA refuses, in a message with both versions.
bool is_question(const ffi::Frame* frame);

}  // namespace ciranda::jax
