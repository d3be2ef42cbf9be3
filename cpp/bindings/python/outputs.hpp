// Memory that the engine allocated, as arrays of Python's libraries, without a copy. Needs the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include "base/dtype.hpp"
#include "bindings/python/dlpack_exchange.hpp"
#include "call/operation.hpp"

namespace ciranda::python {

// A tensor of the library that `table` belongs to, or a NumPy array where it is null (bfloat16 then as uint16, which
// NumPy has). The array shares and keeps the buffer.
nanobind::object wrap_output(const OutputBuffer& buffer, DataType dtype, const dlpack::ExchangeTable* table);

}  // namespace ciranda::python
