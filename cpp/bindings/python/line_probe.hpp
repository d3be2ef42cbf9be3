// LineProbe: the latency of a cache line between the cores of two processes, for benchmarks on near and far cores.
#pragma once

#include <nanobind/nanobind.h>

namespace ciranda::python {

void bind_line_probe(nanobind::module_& m);

}  // namespace ciranda::python
