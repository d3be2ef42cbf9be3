// xla: the collectives in programs that XLA compiles (`jit_compile=True`). As such programs have no ops, they are
// custom calls, registered in XLA's own registry. They block; src/ciranda/tensorflow/_xla.py makes the calls of one
// program run in the order in which they were traced.
//
// The registry's functions are C++ functions, found by their mangled names. The layout of a custom call's status is
// tested before anything is registered.
//
// Failure: registration returns a text; "" on success. A failed call sets the status that XLA passes, and fills the
// outputs with 0xFF bytes, which are NaNs.
//
// Called by plugin.cc, in ciranda_plugin_open(); the thread that imports the framework's module, without the GIL; no
// lock.
#pragma once

#include <string>

namespace ciranda::tensorflow {

// Registers the custom calls. Once in a process.
std::string register_xla_calls(const std::string& version);

}  // namespace ciranda::tensorflow
