// tables: MXNet's and DLPack's numbers for element types, and the word by which Python finds an error's class.
// Called by lent.hpp and Running; any thread.
#pragma once

#include <ciranda/native/tables.hpp>
#include <optional>

#include "bindings/mxnet/mx_api.hpp"

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

// DLPack's types that MXNet takes: signed, unsigned and floating numbers, and bfloat16, by their bits.
inline constexpr native::DtypeTable<DlType> kDlTypes({{CIRANDA_BOOL, DlType{1, 1}},
                                                      {CIRANDA_UINT8, DlType{1, 8}},
                                                      {CIRANDA_UINT16, std::nullopt},
                                                      {CIRANDA_UINT32, std::nullopt},
                                                      {CIRANDA_UINT64, std::nullopt},
                                                      {CIRANDA_INT8, DlType{0, 8}},
                                                      {CIRANDA_INT16, std::nullopt},
                                                      {CIRANDA_INT32, DlType{0, 32}},
                                                      {CIRANDA_INT64, DlType{0, 64}},
                                                      {CIRANDA_FLOAT16, DlType{2, 16}},
                                                      {CIRANDA_BFLOAT16, DlType{4, 16}},
                                                      {CIRANDA_FLOAT32, DlType{2, 32}},
                                                      {CIRANDA_FLOAT64, DlType{2, 64}},
                                                      {CIRANDA_COMPLEX64, std::nullopt},
                                                      {CIRANDA_COMPLEX128, std::nullopt}});

// MXNet raises the class that is registered under the word before a message's first colon:
// src/ciranda/mxnet/failures.py.
inline constexpr native::StatusTable<const char*> kKinds({{CIRANDA_OK, std::nullopt},
                                                          {CIRANDA_INVALID_ARGUMENT, "CirandaInvalidArgument"},
                                                          {CIRANDA_MISMATCH, "CirandaMismatch"},
                                                          {CIRANDA_RANKS_LOST, "CirandaRanksLost"},
                                                          {CIRANDA_TIMEOUT, "CirandaTimeout"},
                                                          {CIRANDA_ABORTED, "CirandaAborted"},
                                                          {CIRANDA_INTERNAL, "CirandaInternal"}});

}  // namespace ciranda::mxnet
