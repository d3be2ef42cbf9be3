// PeerScan: a scan in the memory of GPUs. All pack, and each rank reduces the slots of the ranks up to itself, in rank
// order.
//
// Called by PeerBackend; one thread (the holder of the progress lock).
#pragma once

#include "backend/cuda/peer_collective.hpp"

namespace ciranda::cuda {

class PeerScan final : public PeerCollective {
 public:
  // As PeerCollective's.
  PeerScan(PeerGroup& group, const Plan& plan) : PeerCollective(group, plan, group.slot_bytes) {}

 private:
  std::span<const Stage> stages() const override;
  PeerStream::Work work(Does what) const override;
};

}  // namespace ciranda::cuda
