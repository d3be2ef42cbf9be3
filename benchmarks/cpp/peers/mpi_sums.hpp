// How an MPI can add numbers of a type up: with a type of its own, where it has one, or with a sum that its user
// writes, over integers of 16 bits.
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

// At least one. A type of the MPI's own is among them only if its sum was tried and right.
std::vector<MpiSum> sums_of(DataType dtype);

}  // namespace peers
