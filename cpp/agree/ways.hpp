// Ways: chooses the way of each call of a lane, from what its members have reported and from nothing that is measured.
// The choice is in the log, so it is alike on all ranks.
//
// A lane has memory on one device of each rank: that of its first call which goes by peer. A call from another device
// is staged. A lane of one rank needs no such memory, and is staged from no device.
//
// Called by Negotiations, which owns it; may_go_by_peer() and may_go_by_nccl() also by WayExpected; pure.
#pragma once

#include <cstddef>
#include <vector>

#include "agree/coordinator_options.hpp"
#include "base/way.hpp"
#include "call/request.hpp"

namespace ciranda {

// Whether calls with this signature can go by memory of devices at all, wherever their tensors lie, in a lane of so
// many ranks.
bool may_go_by_peer(const Signature& signature, std::size_t n_members);
// The same by NCCL, of several.
bool may_go_by_nccl(const Signature& signature);

class Ways {
 public:
  // The options outlive this.
  explicit Ways(const CoordinatorOptions& options) : options_(options) {}

  // `homes`: by member, those of the last report in full of each. Where all are captured, it is kGraph, or a way by
  // which the call cannot be part of graphs. REQUIRES: all members take part; all are captured, or none.
  Way way_of(const Signature& signature, const std::vector<HomeId>& homes);
  // The same where these members have joined: they help with memory on the lane's devices.
  Way way_without(const std::vector<std::int32_t>& absent, const Signature& signature, std::vector<HomeId> homes);

 private:
  // By devices, if all members' tensors are on them; staged: it cannot.
  Way fastest(const Signature& signature) const;
  bool is_alone() const { return options_.size == 1; }

  const CoordinatorOptions& options_;
  std::vector<HomeId> homes_;  // by member, of the lane's first call by peer; empty before
};

}  // namespace ciranda
