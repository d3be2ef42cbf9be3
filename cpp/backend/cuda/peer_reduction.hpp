// PeerReduction: an allreduce or a reduce in the memory of GPUs. All pack their input. Then each rank that receives the
// result reduces a small chunk whole, to its output (one shot); of others each rank reduces its share, to its room, and
// those that receive the result unpack the shares (two shots).
//
// Called by PeerBackend; one thread (the holder of the progress lock).
#pragma once

#include "backend/cuda/peer_collective.hpp"

namespace ciranda::cuda {

class PeerReduction final : public PeerCollective {
 public:
  // As PeerCollective's.
  PeerReduction(PeerGroup& group, const Plan& plan) : PeerCollective(group, plan, group.slot_bytes) {}

 private:
  struct Share {
    std::size_t at;
    std::size_t n_bytes;
  };

  std::span<const Stage> stages() const override;
  PeerStream::Work work(Does what) const override;
  PeerStream::Work reduce_share() const;
  PeerStream::Work unpack() const;
  bool is_one_shot() const;
  // The share of a member in the current chunk.
  Share share(int member) const;
  std::vector<const std::byte*> inputs(std::size_t at) const;
};

}  // namespace ciranda::cuda
