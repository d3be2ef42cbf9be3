// Tensors: converts Paddle's tensors to the engine's.
//
// Threads: any. Failure: an exception of Paddle's, which names the call.
//
// Called by ops.cc.
#pragma once

#include <paddle/phi/api/include/tensor.h>

#include <ciranda/native/tables.hpp>
#include <string>

#include "bindings/paddle/calls.hpp"

namespace ciranda::paddle_ops {

using ::paddle::Tensor;
using Theirs = ::paddle::DataType;

inline constexpr native::DtypeTable<Theirs> kDtypes({
    {CIRANDA_BOOL, Theirs::BOOL},
    {CIRANDA_UINT8, Theirs::UINT8},
    {CIRANDA_UINT16, Theirs::UINT16},
    {CIRANDA_UINT32, Theirs::UINT32},
    {CIRANDA_UINT64, Theirs::UINT64},
    {CIRANDA_INT8, Theirs::INT8},
    {CIRANDA_INT16, Theirs::INT16},
    {CIRANDA_INT32, Theirs::INT32},
    {CIRANDA_INT64, Theirs::INT64},
    {CIRANDA_FLOAT16, Theirs::FLOAT16},
    {CIRANDA_BFLOAT16, Theirs::BFLOAT16},
    {CIRANDA_FLOAT32, Theirs::FLOAT32},
    {CIRANDA_FLOAT64, Theirs::FLOAT64},
    {CIRANDA_COMPLEX64, Theirs::COMPLEX64},
    {CIRANDA_COMPLEX128, Theirs::COMPLEX128},
});

inline ciranda_dtype dtype_of(const Tensor& tensor, const std::string& name) {
  const auto found = kDtypes.ours(tensor.dtype());
  if (!found) refuse(name + ": a tensor of a type that the engine does not know cannot be communicated");
  return *found;
}

// The address that the engine reads or writes. REQUIRES: the tensor is contiguous.
inline void* address_of(const Tensor& tensor) {
  if (!tensor.is_cpu()) refuse("only tensors in CPU memory can be communicated");
  return const_cast<void*>(tensor.data());
}

// `output` may be the input.
inline Described describe(const Tensor& input, const Tensor& output, const std::string& name) {
  return {address_of(input), address_of(output), input.shape(), dtype_of(input, name)};
}

}  // namespace ciranda::paddle_ops
