// handler: the common start of every handler.
#pragma once

#include "bindings/jax/ffi.hpp"

namespace ciranda::jax {

// Whether XLA only queries the handler's version, as it does once, when the handler is registered. The answer is then
// given: XLA's own version, if its table has all that is used here. Otherwise XLA's message names the two versions that
// do not match.
bool is_question(const ffi::Frame* frame);

}  // namespace ciranda::jax
