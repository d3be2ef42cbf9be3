// Memory that the engine allocated, as arrays of Python's libraries, without a copy. Needs the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include "base/dtype.hpp"
#include "bindings/python/dlpack_exchange.hpp"
#include "call/output_memory.hpp"

namespace ciranda::python {

// A tensor of the library of `table`; if that is null, a NumPy array (bfloat16 as uint16, which NumPy has). The array
// shares and keeps the buffer.
nanobind::object wrap_output(const OutputBuffer& buffer, DataType dtype, const dlpack::ExchangeTable* table);

}  // namespace ciranda::python
