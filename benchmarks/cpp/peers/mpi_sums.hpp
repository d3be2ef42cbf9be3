// The ways in which an MPI can sum numbers of a type: with a type of the MPI's own, if it has one, or with a
// user-defined operator on 16-bit integers.
//
// REQUIRES: between MPI_Init and MPI_Finalize. Threads: one.
#pragma once

#include <mpi.h>

#include <string>
#include <vector>

#include "system.hpp"

namespace peers {

struct MpiSum {
  MPI_Datatype datatype;
  MPI_Op op;
  std::string what;
};

// Returns at least one way. The MPI's own type is included only if a trial sum was correct.
std::vector<MpiSum> sums_of(DataType dtype);

}  // namespace peers
