// PeerSettling: the members of a lane allocate memory on their GPUs, exchange its handles, and map the memory of all
// others. If one fails, none uses the memory. One of those that failed gets its own error as the outcome, so that it is
// logged once; all others get Aborted.
//
// Members exchange handles and outcomes in their slots of the lane's arena, as one chunk.
//
// Called by PeerBackend; one thread (the holder of the progress lock).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/peer_group.hpp"
#include "collective/running_collective.hpp"

namespace ciranda::cuda {

class PeerSettling final : public RunningCollective {
 public:
  PeerSettling(std::shared_ptr<PeerGroup> group, std::size_t slot_bytes);

  Progress step() override;
  std::vector<int> awaited() const override;
  std::string awaited_device() const override { return group_.stream.awaited_device(); }

 private:
  enum class Phase : std::uint8_t { kBegin, kMake, kOffer, kOpen, kPublished };
  struct Offer;

  void make();
  void offer();
  void open();
  void publish_outcome();
  void conclude();
  const Offer& offer_of(int member) const;
  std::string advice() const;

  std::uint64_t& can_use_all(int member) const;

  const std::shared_ptr<PeerGroup> shared_group_;  // shared with the jobs that fill it in
  PeerGroup& group_;
  const std::size_t slot_bytes_;
  const std::uint64_t chunk_;
  Phase phase_ = Phase::kBegin;
  Status own_;  // whether this member has memory and has mapped that of all, or why not
};

}  // namespace ciranda::cuda
