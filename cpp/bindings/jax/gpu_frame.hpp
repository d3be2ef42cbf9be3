// GpuFrame: what the frame of a call in a program for a GPU says.
// Called by gpu_collective.hpp and look.hpp; any thread.
#pragma once

#include <string>

#include "bindings/jax/collective_call.hpp"
#include "bindings/jax/ffi.hpp"
#include "bindings/jax/memory.hpp"
#include "bindings/jax/parameters.hpp"

namespace ciranda::jax {

struct GpuFrame {
  Parameters parameters;
  Memory memory;
  std::string problem;  // why the two cannot be used; "" if they can

  explicit GpuFrame(const ffi::Frame& frame) : problem(read(frame.attributes, &parameters)) {
    if (!problem.empty()) return;
    problem = Memory::of_gpu(frame, &memory);
    if (!problem.empty()) problem = std::string(kBinding) + ": '" + parameters.name + "': " + problem;
  }
};

}  // namespace ciranda::jax
