// NcclExchange: an allgather, a gather, an alltoall or a scatter by NCCL. What a rank has for itself is a copy of ours.
//
// An allgather is NCCL's where it is one chunk of equally many bytes of each rank, and otherwise a group of broadcasts;
// the rest are groups of sends and receives.
//
// Called by NcclBackend; one thread (the holder of the progress lock).
#pragma once

#include "backend/cuda/nccl_collective.hpp"

namespace ciranda::cuda {

class NcclExchange final : public NcclCollective {
 public:
  // As NcclCollective's.
  NcclExchange(NcclGroup& group, const Plan& plan);

 private:
  Steps moves() const override;
  Steps results() const override;
  Operations allgather(const std::byte* from) const;

  const OutputPieces& output_of(int member) const { return plan().output_by_rank[static_cast<std::size_t>(member)]; }
  // Of the chunk: what this rank sends to a member, and receives from it, if there is no memory for it either.
  std::size_t n_bytes_to(int member) const;
  std::size_t n_bytes_from(int member) const;
  // Where that lies, in the tensors or in the room.
  const std::byte* from(int member) const;
  std::byte* to(int member) const;
  std::byte* room_for(int member) const;
  // Where NCCL's allgather puts the parts of all, one behind the other; null: not in the tensors.
  std::byte* whole_output() const;

  const std::size_t share_bytes_;
  const bool is_by_rank_;      // each has something else for each; else the same for all receivers
  const bool must_pack_;       // what is received would overwrite what is sent
  const bool is_all_at_once_;  // by NCCL's allgather
};

}  // namespace ciranda::cuda
