// The functions of MPI that cpp/bindings/mpi carries out, as jaxlib finds them by name, and what tests make of them.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "bindings/mpi/abi.hpp"

extern "C" {
int MPIABI_Init_thread(int*, char***, int, int*);
int MPIABI_Finalize();
int MPIABI_Initialized(int*);
int MPIABI_Error_string(int, char*, int*);
int MPIABI_Type_size(ciranda::mpi::Datatype, int*);
int MPIABI_Comm_split(ciranda::mpi::Comm, int, int, ciranda::mpi::Comm*);
int MPIABI_Comm_dup(ciranda::mpi::Comm, ciranda::mpi::Comm*);
int MPIABI_Comm_free(ciranda::mpi::Comm*);
int MPIABI_Comm_rank(ciranda::mpi::Comm, int*);
int MPIABI_Comm_size(ciranda::mpi::Comm, int*);
int MPIABI_Comm_compare(ciranda::mpi::Comm, ciranda::mpi::Comm, int*);
int MPIABI_Allreduce(const void*, void*, int, ciranda::mpi::Datatype, ciranda::mpi::Op, ciranda::mpi::Comm);
int MPIABI_Allgather(const void*, int, ciranda::mpi::Datatype, void*, int, ciranda::mpi::Datatype, ciranda::mpi::Comm);
int MPIABI_Alltoall(const void*, int, ciranda::mpi::Datatype, void*, int, ciranda::mpi::Datatype, ciranda::mpi::Comm);
int MPIABI_Reduce_scatter(const void*, void*, const int*, ciranda::mpi::Datatype, ciranda::mpi::Op, ciranda::mpi::Comm);
int MPIABI_Bcast(void*, int, ciranda::mpi::Datatype, int, ciranda::mpi::Comm);
int MPIABI_Barrier(ciranda::mpi::Comm);
int MPIABI_Isend(const void*, int, ciranda::mpi::Datatype, int, int, ciranda::mpi::Comm, ciranda::mpi::RequestHandle*);
int MPIABI_Irecv(void*, int, ciranda::mpi::Datatype, int, int, ciranda::mpi::Comm, ciranda::mpi::RequestHandle*);
int MPIABI_Test(ciranda::mpi::RequestHandle*, int*, ciranda::mpi::Status*);
int MPIABI_Waitall(int, ciranda::mpi::RequestHandle*, ciranda::mpi::Status*);
int MPIABI_Win_create();
extern const std::intptr_t MPIABI_MAXLOC;
extern const std::intptr_t MPIABI_LONG_DOUBLE;
}

namespace ciranda::mpi {

inline std::string text_of_error(int error) {
  std::array<char, kMaxErrorString> text{};
  int length = 0;
  EXPECT_EQ(MPIABI_Error_string(error, text.data(), &length), 0);
  return {text.data(), static_cast<std::size_t>(length)};
}

inline void ok(int error) { EXPECT_EQ(error, 0) << text_of_error(error); }

// That the call fails, and what it says.
inline void fails(int error, const std::string& part) {
  EXPECT_NE(error, 0) << part;
  EXPECT_NE(text_of_error(error).find(part), std::string::npos) << text_of_error(error) << ", not " << part;
}

inline int rank_in(Comm comm) {
  int rank = -1;
  ok(MPIABI_Comm_rank(comm, &rank));
  return rank;
}

inline Comm split(Comm comm, int color, int key) {
  Comm made = kCommNull;
  ok(MPIABI_Comm_split(comm, color, key, &made));
  return made;
}

}  // namespace ciranda::mpi
