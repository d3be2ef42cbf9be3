// Wraps memory that the engine has allocated as arrays of Python's libraries, without a copy. Needs the GIL.
// Called by EngineHandle and OperationHandle.
#pragma once

#include <nanobind/nanobind.h>

#include "base/dtype.hpp"
#include "bindings/python/tensor_library.hpp"
#include "call/output_memory.hpp"

namespace ciranda::python {

// Returns a tensor of the library. In host memory, if the library has no table: a NumPy array (bfloat16 as uint16,
// since NumPy has no bfloat16). The tensor or array shares ownership of the buffer.
nanobind::object wrap_output(const OutputBuffer& buffer, DataType dtype, const TensorLibrary& library);

}  // namespace ciranda::python
