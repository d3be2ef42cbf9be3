// Wraps memory that the engine has allocated as arrays of Python's libraries, without a copy. Needs the GIL.
// Called by EngineHandle and OperationHandle.
#pragma once

#include <nanobind/nanobind.h>

#include "base/dtype.hpp"
#include "bindings/python/dlpack_exchange.hpp"
#include "call/output_memory.hpp"

namespace ciranda::python {

// Returns a tensor of the library to which `table` belongs, or a NumPy array if `table` is null (bfloat16 as uint16,
// since NumPy has no bfloat16). The tensor or array shares ownership of the buffer.
nanobind::object wrap_output(const OutputBuffer& buffer, DataType dtype, const dlpack::ExchangeTable* table);

}  // namespace ciranda::python
