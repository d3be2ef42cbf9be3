// NcclBroadcast: a broadcast by NCCL, from the root's tensors and to those of the others where a chunk is one piece.
//
// Called by NcclBackend; one thread (the holder of the progress lock).
#pragma once

#include "backend/cuda/nccl_collective.hpp"

namespace ciranda::cuda {

class NcclBroadcast final : public NcclCollective {
 public:
  // As NcclCollective's.
  NcclBroadcast(NcclGroup& group, const Plan& plan) : NcclCollective(group, plan, group.room_bytes) {}

 private:
  Steps moves() const override;
  Steps results() const override;
  bool is_root() const { return self() == plan().root; }
};

}  // namespace ciranda::cuda
