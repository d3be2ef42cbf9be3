// tables: TensorFlow's numbers for the engine's element types and status codes.
// Called by ops.hpp and Run; pure.
#pragma once

#include <ciranda/native/call.hpp>
#include <ciranda/native/tables.hpp>
#include <string>

#include "bindings/tensorflow/tf_api.hpp"

namespace ciranda::tensorflow {

inline constexpr native::DtypeTable<DataType> kDtypes({{CIRANDA_BOOL, kBool},
                                                       {CIRANDA_UINT8, kUint8},
                                                       {CIRANDA_UINT16, kUint16},
                                                       {CIRANDA_UINT32, kUint32},
                                                       {CIRANDA_UINT64, kUint64},
                                                       {CIRANDA_INT8, kInt8},
                                                       {CIRANDA_INT16, kInt16},
                                                       {CIRANDA_INT32, kInt32},
                                                       {CIRANDA_INT64, kInt64},
                                                       {CIRANDA_FLOAT16, kHalf},
                                                       {CIRANDA_BFLOAT16, kBfloat16},
                                                       {CIRANDA_FLOAT32, kFloat},
                                                       {CIRANDA_FLOAT64, kDouble},
                                                       {CIRANDA_COMPLEX64, kComplex64},
                                                       {CIRANDA_COMPLEX128, kComplex128}});

// TensorFlow's names of these types in the specification of an op.
inline constexpr const char* kDtypesSpec =
    "bool, uint8, uint16, uint32, uint64, int8, int16, int32, int64, half, bfloat16, float, double, complex64, "
    "complex128";

// All errors after which a new world is needed have the same code; the message names the error.
inline constexpr native::StatusTable<Code> kCodes({{CIRANDA_OK, kOk},
                                                   {CIRANDA_INVALID_ARGUMENT, kInvalidArgument},
                                                   {CIRANDA_MISMATCH, kFailedPrecondition},
                                                   {CIRANDA_RANKS_LOST, kAborted},
                                                   {CIRANDA_TIMEOUT, kAborted},
                                                   {CIRANDA_ABORTED, kAborted},
                                                   {CIRANDA_INTERNAL, kInternal}});

// The engine's message, prefixed with the name of its status: TensorFlow has one code for several of our statuses.
inline std::string message_of(const native::Outcome& outcome) {
  return std::string(ciranda_status_name(outcome.status)) + ": " + outcome.message;
}

}  // namespace ciranda::tensorflow
