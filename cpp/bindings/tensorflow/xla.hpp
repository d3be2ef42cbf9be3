// xla: the collectives in programs that XLA compiles (`jit_compile=True`), which know no ops: custom calls, entered in
// XLA's own registry. They block; src/ciranda/tensorflow/_xla.py sees to it that those of one program run in the order
// in which they were traced.
//
// The registry's functions are C++, found by their mangled names; that a custom call's status is what it is taken for
// is probed before anything is entered.
//
// Failure: in words; "" if all is well. Of a call, by the status that XLA gives it, and the outputs are filled with
// bytes of 255, which are NaNs.
#pragma once

#include <string>

namespace ciranda::tensorflow {

// Once in a process.
std::string register_xla_calls(const std::string& version);

}  // namespace ciranda::tensorflow
