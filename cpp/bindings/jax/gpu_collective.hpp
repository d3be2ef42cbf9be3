// gpu_collective: the handlers of compiled programs for a GPU.
// Called by plugin.cc; XLA calls the handlers, on the thread that gives the GPU the program's steps, one after the
// other in the program's order, which is the same on all ranks.
#pragma once

#include "bindings/jax/ffi.hpp"

namespace ciranda::jax {

// Makes the call, and returns when all ranks have made it and the GPU has been given what makes the result: the host
// waits for the other ranks' calls, and never for a GPU. The program's stream comes to its next steps after that.
ffi::Error* run_gpu_collective(ffi::Frame* frame);

// As get_size(), in the GPU's memory.
ffi::Error* get_gpu_size(ffi::Frame* frame);

}  // namespace ciranda::jax
