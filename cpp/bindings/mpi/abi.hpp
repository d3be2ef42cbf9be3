// abi: the symbols that MPItrampoline, the MPI that is compiled into jaxlib, needs from the library that
// MPITRAMPOLINE_LIB names: MPIABI_* for each function and each constant of MPI 3.1. These are our own declarations of
// the implemented ones; jaxlib keeps handles and constants as opaque numbers, whose values this library chooses.
// Called by jaxlib, through the names of its symbols; constants used by Communicator, constants.cc, errors.hpp and
// handles.hpp.
#pragma once

#include <ciranda/ciranda.h>

#include <cstddef>
#include <cstdint>

namespace ciranda::mpi {

// The version of MPItrampoline's interface. The major number must equal jaxlib's; the minor must be at least jaxlib's.
inline constexpr int kAbiMajor = 2;
inline constexpr int kAbiMinor = 10;
inline constexpr int kAbiPatch = 0;

inline constexpr std::size_t kMaxErrorString = 1024;
inline constexpr std::size_t kMaxLibraryVersion = 8192;
inline constexpr std::size_t kMaxProcessorName = 256;

using Comm = std::uintptr_t;
using Datatype = std::uintptr_t;
using Op = std::uintptr_t;
using RequestHandle = std::uintptr_t;

struct alignas(8) Status {
  unsigned char reserved[24];  // NOLINT(modernize-avoid-c-arrays): the layout is given
  int source;
  int tag;
  int error;
};
static_assert(sizeof(Status) == 40 && offsetof(Status, source) == 24);

// Values chosen here, distinct within each kind.
enum : std::intptr_t {
  kSuccess = 0,
  kFirstError = 1000,
  kAnySource = -1,
  kAnyTag = -2,
  kProcNull = -3,
  kUndefined = -4,
  kInPlace = -5,

  kCommNull = 0,
  kCommWorld = 1,
  kCommSelf = 2,
  kFirstOwnComm = 3,

  kRequestNull = 0,

  kThreadSingle = 0,
  kThreadFunneled = 1,
  kThreadSerialized = 2,
  kThreadMultiple = 3,

  kIdent = 0,
  kCongruent = 1,
  kSimilar = 2,
  kUnequal = 3,

  kDatatypes = 0x10000,
  kOps = 0x20000,
  kWithoutMeaning = 0x30000,
};

// clang-format off
// The engine's element types, under all of MPI's names for them.
#define CIRANDA_MPI_DATATYPES(X) \
  X(BYTE, UINT8) X(CHAR, INT8) X(SIGNED_CHAR, INT8) X(UNSIGNED_CHAR, UINT8) X(C_BOOL, BOOL) X(CXX_BOOL, BOOL) \
  X(SHORT, INT16) X(UNSIGNED_SHORT, UINT16) X(INT, INT32) X(UNSIGNED, UINT32) X(LONG, INT64) X(UNSIGNED_LONG, UINT64) \
  X(LONG_LONG, INT64) X(LONG_LONG_INT, INT64) X(UNSIGNED_LONG_LONG, UINT64) \
  X(INT8_T, INT8) X(INT16_T, INT16) X(INT32_T, INT32) X(INT64_T, INT64) \
  X(UINT8_T, UINT8) X(UINT16_T, UINT16) X(UINT32_T, UINT32) X(UINT64_T, UINT64) X(FLOAT, FLOAT32) X(DOUBLE, FLOAT64) \
  X(C_COMPLEX, COMPLEX64) X(C_FLOAT_COMPLEX, COMPLEX64) X(CXX_FLOAT_COMPLEX, COMPLEX64) \
  X(C_DOUBLE_COMPLEX, COMPLEX128) X(CXX_DOUBLE_COMPLEX, COMPLEX128)

#define CIRANDA_MPI_OPS(X) \
  X(SUM, SUM) X(PROD, PRODUCT) X(MIN, MIN) X(MAX, MAX) X(BAND, BITWISE_AND) X(BOR, BITWISE_OR) X(BXOR, BITWISE_XOR) \
  X(LAND, LOGICAL_AND) X(LOR, LOGICAL_OR) X(LXOR, LOGICAL_XOR)

#define CIRANDA_MPI_OTHER_CONSTANTS(X) \
  X(SUCCESS, kSuccess) X(ANY_SOURCE, kAnySource) X(ANY_TAG, kAnyTag) X(PROC_NULL, kProcNull) X(UNDEFINED, kUndefined) \
  X(IN_PLACE, kInPlace) X(COMM_NULL, kCommNull) X(COMM_WORLD, kCommWorld) X(COMM_SELF, kCommSelf) \
  X(REQUEST_NULL, kRequestNull) X(STATUS_IGNORE, 0) X(STATUSES_IGNORE, 0) X(THREAD_SINGLE, kThreadSingle) \
  X(THREAD_FUNNELED, kThreadFunneled) X(THREAD_SERIALIZED, kThreadSerialized) X(THREAD_MULTIPLE, kThreadMultiple) \
  X(IDENT, kIdent) X(CONGRUENT, kCongruent) X(SIMILAR, kSimilar) X(UNEQUAL, kUnequal)
// clang-format on

}  // namespace ciranda::mpi
