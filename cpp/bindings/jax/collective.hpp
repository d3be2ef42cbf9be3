// collective: the handler of all collectives in a compiled program.
#pragma once

#include "bindings/jax/ffi.hpp"

namespace ciranda::jax {

// Hands the call in and returns; it waits for 50 us at most, if the call is small and no other is pending. XLA goes on
// with what does not need the result, in whatever order, and hears of the end by the frame's future, on a thread of the
// engine's that is there for callbacks: nobody else waits for that thread, so that what follows in the program may take
// long, run the user's code, and wait for other collectives. An error becomes the program's, with the engine's message.
ffi::Error* run_collective(ffi::Frame* frame);

// Writes how many ranks the process set of the attributes has: an int32 without dimensions.
ffi::Error* get_size(ffi::Frame* frame);

// A step of a program that is there to be one: XLA:CPU does programs of few steps one after the other.
ffi::Error* do_nothing(ffi::Frame* frame);

}  // namespace ciranda::jax
