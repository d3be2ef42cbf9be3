// PeerAlone: a collective of one rank in the memory of its GPU. It has nobody to exchange anything with, so a launch
// scales each range of its tensors that has a factor, and another copies all that has none; nothing is launched for
// results that lie there already. It needs no slots.
//
// The plan is done when its results are there.
//
// Called by PeerBackend; one thread (the holder of the progress lock).
#pragma once

#include <string>
#include <vector>

#include "backend/cuda/peer_stream.hpp"
#include "collective/running_collective.hpp"
#include "fuse/plan.hpp"

namespace ciranda::cuda {

class PeerAlone final : public RunningCollective {
 public:
  // Begins to execute the plan. `stream` is that of the plan's GPU, and outlives this, as the plan does. REQUIRES:
  // nothing is under way in the stream; plan.n_bytes > 0.
  PeerAlone(PeerStream& stream, const Plan& plan);

  Progress step() override;
  std::vector<int> awaited() const override { return {}; }
  Status status() const override { return status_; }
  std::string awaited_device() const override { return stream_.awaited_device(); }

 private:
  PeerStream& stream_;
  Status status_;
};

}  // namespace ciranda::cuda
