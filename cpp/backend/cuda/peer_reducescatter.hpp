// PeerReducescatter: a reducescatter in the memory of GPUs. All pack the rows of each rank, and each rank reduces its
// own from the slots of all, in rank order.
//
// Called by PeerBackend; one thread (the holder of the progress lock).
#pragma once

#include "backend/cuda/peer_collective.hpp"

namespace ciranda::cuda {

class PeerReducescatter final : public PeerCollective {
 public:
  // As PeerCollective's.
  PeerReducescatter(PeerGroup& group, const Plan& plan) : PeerCollective(group, plan, share_bytes(group)) {}

 private:
  std::span<const Stage> stages() const override;
  PeerStream::Work work(Does what) const override;
};

}  // namespace ciranda::cuda
