// xla: the collectives in programs that XLA compiles (`jit_compile=True`), which have no ops: custom calls, registered
// in XLA's own registry. They block; src/ciranda/tensorflow/_xla.py makes those of one program run in the order in
// which they were traced.
//
// The registry's functions are C++, found by their mangled names; the layout of a custom call's status is probed before
// anything is registered.
//
// Failure: as text; "" on success. A failed call sets the status that XLA passes, and fills the outputs with 0xFF
// bytes, which are NaNs.
#pragma once

#include <string>

namespace ciranda::tensorflow {

// Once in a process.
std::string register_xla_calls(const std::string& version);

}  // namespace ciranda::tensorflow
