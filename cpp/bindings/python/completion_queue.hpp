// The engine's CompletionQueue for Python. Needs the GIL, which next() releases while it sleeps.
#pragma once

#include <nanobind/nanobind.h>

namespace ciranda::python {

void bind_completion_queue(nanobind::module_& m);

}  // namespace ciranda::python
