// The fake NCCL: a libnccl.so.2 for machines without a GPU, with the part of NCCL that the engine calls
// (cpp/backend/cuda/nccl_api.hpp), on the fake driver (tests/fakes/cuda.hpp), which it finds as the real one finds
// libcuda.so.1.
//
// What it is like:
//   communicators   of ranks that are threads or processes of one host, over shared memory; two ranks on one GPU are
//                   refused; they do not block: ncclCommGetAsyncError tells when one is made
//   collectives     a kernel on the given stream, one for a group of calls, which spins until all ranks' kernels have
//                   come, and reads and writes the tensors; the fake driver's checker orders it with all other work. A
//                   rank that calls another one than the others ends the program, as does one whose tensors overlap
//                   where NCCL forbids it, and a receive of another length than what is sent
//   order           of the kernels of several communicators: if GPUs of the process are given them in orders that could
//                   make them wait for each other, the program ends, even if they happened not to
//   sums            in an order that is random from call to call, rounded after each addition, alike on all ranks
//   graphs          a kernel in a graph is given to the GPU, and has its place in the order, at each launch
//   aborts          end the kernels of the communicator. While its GPU has others with work under way, to abort one
//                   alone hangs: all are aborted in one group. An abort, and the end of a communicator, come back when
//                   no graph has kernels of it any more
// What it is not: it has no CTAs, so kernels of two communicators never keep each other from running; and it does not
// see in which order GPUs of other processes are given kernels.
//
// A program finds fake_nccl_n_under_way(), fake_nccl_n_calls() and fake_nccl_n_communicators() by dlsym.
//
// Settings, in the environment:
//   FAKE_NCCL_VERSION=v   10000 * major + 100 * minor + patch (22809)
//   FAKE_NCCL_POLLS=k     what does not block takes k polls: init, and the first collective of a communicator (0)
//   FAKE_NCCL_INIT=e      ncclCommInitRankConfig fails with error e on the ranks of this process; never: it never ends
//   FAKE_NCCL_ASYNC=k:e   once it has been given its k-th collective, a communicator of this process has error e
//   FAKE_NCCL_ANY_ORDER=1 kernels of several communicators may come in any order
//   FAKE_NCCL_ABORT=never no abort comes back, and no kernel ends by one
//   FAKE_NCCL_ENDLESS=k   the kernel of the k-th collective of a communicator of this process never ends by itself
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/nccl_api.hpp"

#pragma GCC visibility push(default)
extern "C" {
namespace ciranda::fakes {

cuda::ncclResult_t ncclGetVersion(int* version);
const char* ncclGetErrorString(cuda::ncclResult_t result);
const char* ncclGetLastError(cuda::ncclComm_t communicator);
cuda::ncclResult_t ncclGetUniqueId(cuda::ncclUniqueId* id);
cuda::ncclResult_t ncclCommInitRankConfig(cuda::ncclComm_t* communicator, int n_ranks, cuda::ncclUniqueId id, int rank,
                                          cuda::ncclConfig_t* config);
cuda::ncclResult_t ncclCommGetAsyncError(cuda::ncclComm_t communicator, cuda::ncclResult_t* error);
cuda::ncclResult_t ncclCommFinalize(cuda::ncclComm_t communicator);
cuda::ncclResult_t ncclCommDestroy(cuda::ncclComm_t communicator);
cuda::ncclResult_t ncclCommAbort(cuda::ncclComm_t communicator);
cuda::ncclResult_t ncclGroupStart();
cuda::ncclResult_t ncclGroupEnd();
cuda::ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, cuda::ncclDataType_t type,
                                 cuda::ncclRedOp_t op, cuda::ncclComm_t communicator, cuda::CUstream stream);

cuda::ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, cuda::ncclDataType_t type,
                              cuda::ncclRedOp_t op, int root, cuda::ncclComm_t communicator, cuda::CUstream stream);
cuda::ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, cuda::ncclDataType_t type,
                                     cuda::ncclRedOp_t op, cuda::ncclComm_t communicator, cuda::CUstream stream);
cuda::ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, cuda::ncclDataType_t type,
                                 cuda::ncclComm_t communicator, cuda::CUstream stream);
cuda::ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, cuda::ncclDataType_t type, int root,
                                 cuda::ncclComm_t communicator, cuda::CUstream stream);
cuda::ncclResult_t ncclSend(const void* from, std::size_t count, cuda::ncclDataType_t type, int peer,
                            cuda::ncclComm_t communicator, cuda::CUstream stream);
cuda::ncclResult_t ncclRecv(void* to, std::size_t count, cuda::ncclDataType_t type, int peer,
                            cuda::ncclComm_t communicator, cuda::CUstream stream);

// Kernels of this process that have been queued and have not ended.
std::uint64_t fake_nccl_n_under_way();
// Communicators of this process that have been made and not ended.
std::uint64_t fake_nccl_n_communicators();
// How often this process has called the function, of the collectives; "": all of them.
std::uint64_t fake_nccl_n_calls(const char* name);

}  // namespace ciranda::fakes
}
#pragma GCC visibility pop
