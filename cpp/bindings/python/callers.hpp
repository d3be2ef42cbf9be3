// callers: tells the engine which threads of the interpreter may make a call.
// Called by module.cc, with the GIL.
#pragma once

namespace ciranda::python {

// Registers this interpreter with the engine (ask_interpreter() in capi/callers.hpp).
void answer_for_threads();

}  // namespace ciranda::python
