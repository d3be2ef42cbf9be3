// MPI's collectives. The ranks of a communicator may have any order; the engine's results are in the world's order.
#include <cstddef>
#include <cstring>
#include <vector>

#include "bindings/mpi/calls.hpp"
#include "bindings/mpi/errors.hpp"
#include "bindings/mpi/handles.hpp"

namespace ciranda::mpi {
namespace {

const void* input_of(const void* send, const void* receive) {
  return reinterpret_cast<std::intptr_t>(send) == kInPlace ? receive : send;
}

// Copies the blocks of all ranks from the communicator's order to the world's (`to_engine`), or back.
void reorder(const Communicator& communicator, const void* from, void* to, std::size_t n_bytes, bool to_engine) {
  for (std::size_t rank = 0; rank < communicator.positions().size(); ++rank) {
    const std::size_t position = communicator.positions()[rank];
    const std::size_t source = to_engine ? rank : position;
    const std::size_t target = to_engine ? position : rank;
    std::memcpy(static_cast<std::byte*>(to) + target * n_bytes, static_cast<const std::byte*>(from) + source * n_bytes,
                n_bytes);
  }
}

// A buffer for a block of every rank; empty if the communicator is in the world's order.
std::vector<std::byte> room(const Communicator& communicator, std::size_t n_bytes) {
  return std::vector<std::byte>(communicator.in_order() ? 0 : communicator.positions().size() * n_bytes);
}

std::size_t bytes_of(std::int64_t count, ciranda_dtype dtype) {
  return static_cast<std::size_t>(count) * ciranda_dtype_size(dtype);
}

void allreduce(const void* send, void* receive, int count, Datatype datatype, Op op, Comm comm) {
  const auto communicator = communicator_of(comm);
  const ciranda_dtype dtype = dtype_of(datatype);
  ciranda_request request = request_of(CIRANDA_ALLREDUCE);
  request.op = op_of(op, dtype);
  run(*communicator, request, Tensor(input_of(send, receive), receive, dtype, counted(count)), request.op);
}

void allgather(const void* send, int count, Datatype datatype, void* receive, Comm comm) {
  const auto communicator = communicator_of(comm);
  const ciranda_dtype dtype = dtype_of(datatype);
  const std::size_t n_bytes = bytes_of(counted(count), dtype);
  std::vector<std::byte> gathered = room(*communicator, n_bytes);
  void* const output = gathered.empty() ? receive : gathered.data();
  const void* input = send;
  if (reinterpret_cast<std::intptr_t>(send) == kInPlace) {
    input = static_cast<std::byte*>(receive) + static_cast<std::size_t>(communicator->rank()) * n_bytes;
  }
  ciranda_request request = request_of(CIRANDA_ALLGATHER);
  request.flags = CIRANDA_REQUEST_HAS_ROOM;
  run(*communicator, request, Tensor(input, output, dtype, counted(count)));
  if (!gathered.empty()) reorder(*communicator, gathered.data(), receive, n_bytes, false);
}

void alltoall(const void* send, int count, Datatype datatype, void* receive, Comm comm) {
  const auto communicator = communicator_of(comm);
  const ciranda_dtype dtype = dtype_of(datatype);
  const std::size_t n_bytes = bytes_of(counted(count), dtype);
  std::vector<std::byte> dealt = room(*communicator, n_bytes);
  const void* input = input_of(send, receive);
  void* output = receive;
  if (!dealt.empty()) {
    reorder(*communicator, input, dealt.data(), n_bytes, true);
    input = output = dealt.data();
  }
  ciranda_request request = request_of(CIRANDA_ALLTOALL);
  request.flags = CIRANDA_REQUEST_HAS_ROOM;
  run(*communicator, request, Tensor(input, output, dtype, communicator->size(), counted(count)));
  if (!dealt.empty()) reorder(*communicator, dealt.data(), receive, n_bytes, false);
}

void reduce_scatter(const void* send, void* receive, int count, Datatype datatype, Op op, Comm comm) {
  const auto communicator = communicator_of(comm);
  const ciranda_dtype dtype = dtype_of(datatype);
  const std::size_t n_bytes = bytes_of(counted(count), dtype);
  if (reinterpret_cast<std::intptr_t>(send) == kInPlace) throw Failure{"MPI_IN_PLACE is not offered by ciranda"};
  std::vector<std::byte> ordered = room(*communicator, n_bytes);
  if (!ordered.empty()) reorder(*communicator, send, ordered.data(), n_bytes, true);
  ciranda_request request = request_of(CIRANDA_REDUCESCATTER);
  request.op = op_of(op, dtype);
  const void* const input = ordered.empty() ? send : ordered.data();
  run(*communicator, request, Tensor(input, receive, dtype, communicator->size(), counted(count)), request.op);
}

void broadcast(void* buffer, int count, Datatype datatype, int root, Comm comm) {
  const auto communicator = communicator_of(comm);
  if (root < 0 || root >= communicator->size()) throw Failure{"there is no rank " + std::to_string(root)};
  ciranda_request request = request_of(CIRANDA_BROADCAST);
  request.root = communicator->ranks()[static_cast<std::size_t>(root)];
  run(*communicator, request, Tensor(buffer, buffer, dtype_of(datatype), counted(count)), root);
}

int equal_count(const int* counts, const Communicator& communicator) {
  for (int rank = 1; rank < communicator.size(); ++rank) {
    if (counts[rank] != counts[0]) throw Failure{"parts of different size are not offered by ciranda"};
  }
  return counts[0];
}

void same(int count, Datatype datatype, int other_count, Datatype other) {
  if (count != other_count || dtype_of(datatype) != dtype_of(other)) {
    throw Failure{"sending and receiving different counts or types is not offered by ciranda"};
  }
}

}  // namespace
}  // namespace ciranda::mpi

extern "C" {

using namespace ciranda::mpi;  // NOLINT(google-build-using-namespace)

CIRANDA_API int MPIABI_Allreduce(const void* send, void* receive, int count, Datatype datatype, Op op, Comm comm) {
  return guarded("MPI_Allreduce", [&] { allreduce(send, receive, count, datatype, op, comm); });
}

CIRANDA_API int MPIABI_Allgather(const void* send, int count, Datatype datatype, void* receive, int receive_count,
                                 Datatype receive_type, Comm comm) {
  return guarded("MPI_Allgather", [&] {
    const bool in_place = reinterpret_cast<std::intptr_t>(send) == kInPlace;
    if (!in_place) same(count, datatype, receive_count, receive_type);
    allgather(send, receive_count, receive_type, receive, comm);
  });
}

CIRANDA_API int MPIABI_Alltoall(const void* send, int count, Datatype datatype, void* receive, int receive_count,
                                Datatype receive_type, Comm comm) {
  return guarded("MPI_Alltoall", [&] {
    const bool in_place = reinterpret_cast<std::intptr_t>(send) == kInPlace;
    if (!in_place) same(count, datatype, receive_count, receive_type);
    alltoall(send, receive_count, receive_type, receive, comm);
  });
}

CIRANDA_API int MPIABI_Reduce_scatter(const void* send, void* receive, const int* counts, Datatype datatype, Op op,
                                      Comm comm) {
  return guarded("MPI_Reduce_scatter", [&] {
    reduce_scatter(send, receive, equal_count(counts, *communicator_of(comm)), datatype, op, comm);
  });
}

CIRANDA_API int MPIABI_Reduce_scatter_block(const void* send, void* receive, int count, Datatype datatype, Op op,
                                            Comm comm) {
  return guarded("MPI_Reduce_scatter_block", [&] { reduce_scatter(send, receive, count, datatype, op, comm); });
}

CIRANDA_API int MPIABI_Bcast(void* buffer, int count, Datatype datatype, int root, Comm comm) {
  return guarded("MPI_Bcast", [&] { broadcast(buffer, count, datatype, root, comm); });
}

CIRANDA_API int MPIABI_Barrier(Comm comm) {
  return guarded("MPI_Barrier", [&] {
    run(*communicator_of(comm), request_of(CIRANDA_BARRIER), Tensor(nullptr, nullptr, CIRANDA_UINT8, 0));
  });
}
}
