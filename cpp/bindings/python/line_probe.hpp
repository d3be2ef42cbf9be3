// LineProbe: how long a cache line takes between the cores of two processes, for benchmarks that tell near from far.
#pragma once

#include <nanobind/nanobind.h>

namespace ciranda::python {

void bind_line_probe(nanobind::module_& m);

}  // namespace ciranda::python
