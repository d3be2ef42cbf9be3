// handles: MPI's element types and operators as the engine's.
// Called by collectives.cc, constants.cc, messages.cc and session.cc; any thread.
#pragma once

#include "bindings/mpi/abi.hpp"

namespace ciranda::mpi {

#define CIRANDA_MPI_ENUMERATOR(name, ours) k##name,
enum : std::intptr_t { kBeforeDatatypes = kDatatypes, CIRANDA_MPI_DATATYPES(CIRANDA_MPI_ENUMERATOR) };
enum : std::intptr_t { kBeforeOps = kOps, CIRANDA_MPI_OPS(CIRANDA_MPI_ENUMERATOR) };
#undef CIRANDA_MPI_ENUMERATOR

// Throw Failure if the engine has no counterpart.
ciranda_dtype dtype_of(Datatype datatype);
ciranda_reduce_op op_of(Op op, ciranda_dtype dtype);

}  // namespace ciranda::mpi
