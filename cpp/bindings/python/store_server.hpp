// The rendezvous store for launchers in Python.
#pragma once

#include <nanobind/nanobind.h>

namespace ciranda::python {

void bind_store_server(nanobind::module_& m);

}  // namespace ciranda::python
