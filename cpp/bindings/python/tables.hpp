// The engine's tables (types, reductions, collectives, settings) and its SIMD switch, as Python data.
#pragma once

#include <nanobind/nanobind.h>

namespace ciranda::python {

void bind_tables(nanobind::module_& m);

}  // namespace ciranda::python
