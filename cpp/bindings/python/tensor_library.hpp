// TensorLibrary: the library that a Python tensor is of, as far as it is asked for GPU streams and given results.
//
// A library with a DLPack exchange table (torch) is asked by it. Others are Python objects
// (ciranda._cuda_arrays.Library), if they have tensors on GPUs, or nothing: then results are NumPy arrays.
// Called by TensorReader, CallBuilder, EngineHandle, OperationHandle and outputs.hpp; needs the GIL. Failure: throws
// the library's Python error.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

#include "base/place.hpp"
#include "bindings/python/dlpack_exchange.hpp"

namespace ciranda::python {

namespace nb = nanobind;

struct TensorLibrary {
  const dlpack::ExchangeTable* table = nullptr;  // or null
  nb::object object = {};                        // or not valid

  // The GPU with this number, with the stream to which the library gives this thread's work.
  Place current_place(std::int32_t gpu) const;
};

}  // namespace ciranda::python
