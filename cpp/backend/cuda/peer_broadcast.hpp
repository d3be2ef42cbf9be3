// PeerBroadcast: a broadcast in the memory of GPUs. The root packs; the others unpack from its slot.
//
// Called by PeerBackend; one thread (the holder of the progress lock).
#pragma once

#include "backend/cuda/peer_collective.hpp"

namespace ciranda::cuda {

class PeerBroadcast final : public PeerCollective {
 public:
  // As PeerCollective's.
  PeerBroadcast(PeerGroup& group, const Plan& plan);

 private:
  std::span<const Stage> stages() const override { return {&stage_, 1}; }
  PeerStream::Work work(Does what) const override;

  const Stage stage_;  // this rank's
};

}  // namespace ciranda::cuda
