// PeerExchange: an allgather, gather, alltoall or scatter in the memory of GPUs. Ranks pack what they have for others,
// and unpack what is for them from the slots of the others. What a rank has for itself goes by no slot.
//
// Called by PeerBackend; one thread (the holder of the progress lock).
#pragma once

#include "backend/cuda/peer_collective.hpp"

namespace ciranda::cuda {

class PeerExchange final : public PeerCollective {
 public:
  // As PeerCollective's.
  PeerExchange(PeerGroup& group, const Plan& plan);

 private:
  std::span<const Stage> stages() const override { return stages_; }
  PeerStream::Work work(Does what) const override;
  PeerStream::Work pack() const;
  PeerStream::Work unpack() const;
  const OutputPieces& output_of(int member) const { return plan().output_by_rank[static_cast<std::size_t>(member)]; }

  const std::vector<Stage> stages_;  // this rank's
  const bool is_shared_out_;         // each has something else for each, in a share of its slot; else the same for all
};

}  // namespace ciranda::cuda
