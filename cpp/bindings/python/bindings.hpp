// What files add to the module that share nothing else with others.
#pragma once

#include <nanobind/nanobind.h>

namespace ciranda::python {

void bind_completion_queue(nanobind::module_& m);
// The latency of a cache line between the cores of two processes, for benchmarks on near and far cores.
void bind_line_probe(nanobind::module_& m);
// The rendezvous store for launchers in Python.
void bind_store_server(nanobind::module_& m);
// The engine's tables (types, reductions, collectives, settings) and its SIMD switch, as Python data.
void bind_tables(nanobind::module_& m);

}  // namespace ciranda::python
