// The part of NCCL that Ciranda calls, in declarations of its own: no header of NCCL's is needed to build, and no
// library to link. Types and functions have NCCL's names; values and signatures are those of NCCL 2.18, which later
// ones keep.
//
// NcclFunctions is filled by Nccl::load (nccl.hpp).
//
// Used by Nccl, NcclCommunicator, NcclOperation, NcclReduction and NcclShared.
#pragma once

#include <array>
#include <climits>
#include <cstddef>

#include "backend/cuda/driver_api.hpp"

namespace ciranda::cuda {

// Of ncclGetVersion: 10000 * major + 100 * minor + patch. Before it, to abort a communicator is slow, or hangs.
inline constexpr int kOldestNccl = 22602;

enum class ncclResult_t : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,  // of a communicator that does not block
};

enum class ncclDataType_t : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
};

enum class ncclRedOp_t : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3 };

using ncclComm_t = struct ncclComm*;

struct ncclUniqueId {
  std::array<char, 128> internal;
};

// As of 2.18. NCCL reads `size` bytes, and gives fields that `version` did not have their defaults.
struct ncclConfig_t {
  static constexpr int kUndefined = INT_MIN;

  std::size_t size = sizeof(ncclConfig_t);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = kUndefined;
  int cgaClusterSize = kUndefined;
  int minCTAs = kUndefined;
  int maxCTAs = kUndefined;
  const char* netName = nullptr;
  int splitShare = kUndefined;
};

struct NcclFunctions {
  ncclResult_t (*ncclGetVersion)(int* version);
  const char* (*ncclGetErrorString)(ncclResult_t result);
  const char* (*ncclGetLastError)(ncclComm_t communicator);
  ncclResult_t (*ncclGetUniqueId)(ncclUniqueId* id);
  ncclResult_t (*ncclCommInitRankConfig)(ncclComm_t* communicator, int n_ranks, ncclUniqueId id, int rank,
                                         ncclConfig_t* config);
  ncclResult_t (*ncclCommGetAsyncError)(ncclComm_t communicator, ncclResult_t* error);
  ncclResult_t (*ncclCommFinalize)(ncclComm_t communicator);
  ncclResult_t (*ncclCommDestroy)(ncclComm_t communicator);
  ncclResult_t (*ncclCommAbort)(ncclComm_t communicator);
  ncclResult_t (*ncclGroupStart)();
  ncclResult_t (*ncclGroupEnd)();
  ncclResult_t (*ncclAllReduce)(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                                ncclComm_t communicator, CUstream stream);
  ncclResult_t (*ncclReduce)(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                             int root, ncclComm_t communicator, CUstream stream);
  ncclResult_t (*ncclReduceScatter)(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                                    ncclComm_t communicator, CUstream stream);
  ncclResult_t (*ncclAllGather)(const void* from, void* to, std::size_t count, ncclDataType_t type,
                                ncclComm_t communicator, CUstream stream);
  ncclResult_t (*ncclBroadcast)(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                                ncclComm_t communicator, CUstream stream);
  ncclResult_t (*ncclSend)(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                           CUstream stream);
  ncclResult_t (*ncclRecv)(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                           CUstream stream);
};

}  // namespace ciranda::cuda
