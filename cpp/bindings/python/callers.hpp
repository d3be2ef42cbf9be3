// callers: which threads of the interpreter may make a call.
#pragma once

namespace ciranda::python {

// From here on the engine asks (capi/callers.hpp).
void answer_for_threads();

}  // namespace ciranda::python
