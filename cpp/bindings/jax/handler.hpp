// handler: what every handler begins with.
#pragma once

#include "bindings/jax/ffi.hpp"

namespace ciranda::jax {

// Whether XLA only asks what the handler was written for, as it does once, when the handler is registered; then the
// answer is given: the very version that XLA has, if its table has all that is used here. Otherwise XLA's own message
// says which two versions do not fit.
bool is_question(const ffi::Frame* frame);

}  // namespace ciranda::jax
