// NcclOperation: a call of NCCL, as data. A group of them is launched together. Plain values.
// Used by NcclCommunicator and NcclCollective, and through it by what implements that.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/nccl_api.hpp"

namespace ciranda::cuda {

struct NcclOperation {
  enum class Does : std::uint8_t { kAllreduce, kReduce, kReducescatter, kAllgather, kBroadcast, kSend, kReceive };

  Does does;
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::size_t count = 0;  // of elements; reducescatter, allgather: of one rank's part
  ncclDataType_t type = ncclDataType_t::kUint8;
  ncclRedOp_t op = ncclRedOp_t::kSum;
  int peer = -1;  // the root, or whom this rank sends to or receives from
};

}  // namespace ciranda::cuda
