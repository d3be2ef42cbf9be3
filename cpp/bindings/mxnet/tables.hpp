// tables: MXNet's numbers for element types, and how errors begin, by which Python finds their class.
#pragma once

#include <ciranda/native/tables.hpp>
#include <optional>

namespace ciranda::mxnet {

// mshadow::TypeFlag.
inline constexpr native::DtypeTable<int> kDtypes({{CIRANDA_BOOL, 7},
                                                  {CIRANDA_UINT8, 3},
                                                  {CIRANDA_UINT16, std::nullopt},
                                                  {CIRANDA_UINT32, std::nullopt},
                                                  {CIRANDA_UINT64, std::nullopt},
                                                  {CIRANDA_INT8, 5},
                                                  {CIRANDA_INT16, std::nullopt},
                                                  {CIRANDA_INT32, 4},
                                                  {CIRANDA_INT64, 6},
                                                  {CIRANDA_FLOAT16, 2},
                                                  {CIRANDA_BFLOAT16, 12},
                                                  {CIRANDA_FLOAT32, 0},
                                                  {CIRANDA_FLOAT64, 1},
                                                  {CIRANDA_COMPLEX64, std::nullopt},
                                                  {CIRANDA_COMPLEX128, std::nullopt}});

// MXNet makes an exception of the class that is registered under the word before the first colon:
// src/ciranda/mxnet/failures.py.
inline constexpr native::StatusTable<const char*> kKinds({{CIRANDA_OK, std::nullopt},
                                                          {CIRANDA_INVALID_ARGUMENT, "CirandaInvalidArgument"},
                                                          {CIRANDA_MISMATCH, "CirandaMismatch"},
                                                          {CIRANDA_RANKS_LOST, "CirandaRanksLost"},
                                                          {CIRANDA_TIMEOUT, "CirandaTimeout"},
                                                          {CIRANDA_ABORTED, "CirandaAborted"},
                                                          {CIRANDA_INTERNAL, "CirandaInternal"}});

}  // namespace ciranda::mxnet
