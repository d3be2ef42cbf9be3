// NcclAllreduce: an allreduce by NCCL, a chunk after the other:
//
//   launch    pack what is in several pieces, and prescale; then ncclAllReduce, from and to the tensors themselves
//   where
//             the chunk is one piece of them
//   finish    divide, postscale and unpack, once NCCL's work has ended well: after a failure nothing is unpacked
//
// NCCL adds in an order of its own, and rounds after each addition. So these results are alike on all ranks, but have
// not the bits of kernels::reduce.
//
// Called by NcclBackend; one thread (the holder of the progress lock).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/cuda/nccl_group.hpp"
#include "collective/running_collective.hpp"
#include "fuse/plan.hpp"

namespace ciranda::cuda {

class NcclAllreduce final : public RunningCollective {
 public:
  // The group and the plan outlive this. REQUIRES: the group is usable; may_go_by_nccl(); at least one byte.
  NcclAllreduce(NcclGroup& group, const Plan& plan);

  Progress step() override;
  std::vector<int> awaited() const override { return {}; }
  Status status() const override { return status_; }
  std::string awaited_device() const override;

 private:
  enum class Phase : std::uint8_t {
    kBegin,
    kLaunched,  // awaits the GPU, and by it the other ranks
    kFinishing,
  };

  void launch();
  void finish();
  Progress end_chunk();
  bool has_ended();
  // Of the chunk: in the tensors, or in the room.
  const std::byte* from() const;
  std::byte* to() const;
  bool is_unfinished() const;

  NcclGroup& group_;
  const Plan& plan_;
  std::size_t offset_ = 0;  // of the chunk, in the plan
  std::size_t n_bytes_;     // of the chunk
  Phase phase_ = Phase::kBegin;
  Status status_;
};

}  // namespace ciranda::cuda
