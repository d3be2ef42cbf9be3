// with_integer: calls a kernel template with the C++ type of an integer element type.
// Called by level_reduce.hpp and scaled_integers.hpp; pure.
#pragma once

#include <cstdint>

#include "base/dtype.hpp"

namespace ciranda::kernels {

// Calls `run` with a zero of the C++ type. REQUIRES: dtype is an integer type.
template <class Run>
void with_integer(DataType dtype, Run run) {
  switch (dtype) {
    case DataType::kUInt8: return run(std::uint8_t{});
    case DataType::kUInt16: return run(std::uint16_t{});
    case DataType::kUInt32: return run(std::uint32_t{});
    case DataType::kUInt64: return run(std::uint64_t{});
    case DataType::kInt8: return run(std::int8_t{});
    case DataType::kInt16: return run(std::int16_t{});
    case DataType::kInt32: return run(std::int32_t{});
    case DataType::kInt64: return run(std::int64_t{});
    default: return;
  }
}

}  // namespace ciranda::kernels
