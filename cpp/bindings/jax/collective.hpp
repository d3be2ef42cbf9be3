// collective: the handler of all collectives in a compiled program.
// Called by plugin.cc; XLA calls the handler, on a thread of its own, or on a callback thread of the engine, where a
// program goes on after an earlier call.
#pragma once

#include "bindings/jax/ffi.hpp"

namespace ciranda::jax {

// Submits the call and returns; it waits for 50 us at most, if the call is small and no other is pending. XLA continues
// with steps that do not need the result, in any order. The frame's future reports the end, on a callback thread of the
// engine. No other work needs that thread, so the rest of the program may take long, run the user's code, and wait for
// other collectives. An error becomes the program's, with the engine's message.
ffi::Error* run_collective(ffi::Frame* frame);

// Writes the number of ranks of the attributes' process set: an int32 without dimensions.
ffi::Error* get_size(ffi::Frame* frame);

// A step of a program that does nothing: XLA:CPU runs programs of few steps sequentially.
ffi::Error* do_nothing(ffi::Frame* frame);

}  // namespace ciranda::jax
