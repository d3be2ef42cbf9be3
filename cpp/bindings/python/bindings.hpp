// Functions that add a part to the module, for files without a header of their own.
// Called by module.cc, on the thread that imports the module, with the GIL; defined beside LineProbe and QueueHandle,
// in key_agreement.cc, log_watch.cc, stack_watch.cc, store_server.cc and tables.cc. What they add is called by Python,
// on any of its threads, with the GIL.
#pragma once

#include <nanobind/nanobind.h>

namespace ciranda::python {

void bind_completion_queue(nanobind::module_& m);
// Adds the agreement on a secret over a channel on which others may listen.
void bind_key_agreement(nanobind::module_& m);
// Adds the measurement of a cache line's latency between the cores of two processes, for benchmarks.
void bind_line_probe(nanobind::module_& m);
// Adds the thread that gives the lines of the log to Python.
void bind_log_watch(nanobind::module_& m);
// Adds the thread that reports the stacks of this process when asked to, also while all others are busy.
void bind_stack_watch(nanobind::module_& m);
// Adds the rendezvous store, for launchers in Python.
void bind_store_server(nanobind::module_& m);
// Adds the engine's tables (types, reductions, collectives, settings) as Python data, and the SIMD level.
void bind_tables(nanobind::module_& m);

}  // namespace ciranda::python
