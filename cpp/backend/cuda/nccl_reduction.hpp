// NcclReduction: an allreduce, a reduce or a reducescatter whose sums NCCL makes. Kernels of ours prescale before, and
// divide and postscale after.
//
// NCCL adds in an order of its own, and rounds after each addition. So these results are alike on all ranks, but have
// not the bits of kernels::reduce.
//
// Called by NcclBackend; one thread (the holder of the progress lock).
#pragma once

#include "backend/cuda/nccl_collective.hpp"

namespace ciranda::cuda {

class NcclReduction final : public NcclCollective {
 public:
  // As NcclCollective's. REQUIRES: is_reduced_by_nccl().
  NcclReduction(NcclGroup& group, const Plan& plan);

 private:
  // Of the chunk: all elements that this rank gives to NCCL lie one behind the other, and so do those that it gets.
  struct Range {
    const std::byte* from;
    std::byte* to;
    std::size_t n_bytes;  // of a reducescatter, of one rank's part
  };

  Steps moves() const override;
  Steps results() const override;
  bool is_cut() const { return plan().collective == Collective::kReducescatter; }
  // A rank that has joined gives zeros, and needs no result.
  bool contributes() const { return plan().is_contributor(self()); }
  bool has_result() const { return contributes() && plan().is_receiver(self()); }
  Range range() const;
  Range range_of_parts() const;
  std::size_t n_parts() const { return is_cut() ? static_cast<std::size_t>(n_members()) : 1; }
  // The parts of all, if they follow each other in the input without a gap.
  const std::byte* whole_parts() const;
  void pack(Copies& to) const;
};

}  // namespace ciranda::cuda
