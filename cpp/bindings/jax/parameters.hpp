// Parameters: a program's description of one of its collectives, in the attributes of the custom call.
//
// src/ciranda/jax/_primitive.py writes them, with these names. Neither this rank nor a size that affects the values of
// a result is among them, since a compiled program may outlive a world.
//
// Called by CollectiveCall, collective.hpp, gpu_collective.hpp, look.hpp and GpuFrame; any thread.
#pragma once

#include <ciranda/table.h>

#include <cstdint>
#include <string>

#include "bindings/jax/ffi.hpp"

namespace ciranda::jax {

struct Parameters {
  std::string name;
  std::string program;  // unique in this process; ranks may have different ones
  std::int32_t collective = 0;
  std::int32_t op = 0;
  std::int32_t root = -1;
  std::int32_t lane = 0;
  std::int32_t flags = 0;
  std::int32_t n_ranks = 0;  // of the process set, where shapes of the program depend on it; else 0
  std::int64_t process_set = 0;
  double prescale = 1.0;
  double postscale = 1.0;
};

// Returns an error that names the attribute that is missing or of another type; "" if all are valid.
std::string read(const ffi::Attributes& attributes, Parameters* parameters);

}  // namespace ciranda::jax
