// NcclOrderedReduction: an allreduce, a reduce or a reducescatter for which NCCL only moves bytes: kernels of ours
// reduce the inputs in rank order. So the results have the bits of kernels::reduce, and it can do every elementwise op
// of every type.
//
// one shot     what is small: all inputs go to all who get the result, who reduce them
// two shots    each rank gets its share of all inputs, reduces it, and the shares of the result go to all who get it
// parts        of a reducescatter each rank gets its part of all inputs, and reduces it
//
// Called by NcclBackend; one thread (the holder of the progress lock).
#pragma once

#include "backend/cuda/nccl_collective.hpp"

namespace ciranda::cuda {

class NcclOrderedReduction final : public NcclCollective {
 public:
  // As NcclCollective's. REQUIRES: at most kMostInputs members.
  NcclOrderedReduction(NcclGroup& group, const Plan& plan);

 private:
  enum class Shots : std::uint8_t { kOne, kTwo, kParts };
  // Of a chunk.
  struct Share {
    std::size_t at;
    std::size_t n_bytes;
  };

  Steps moves() const override;
  Steps results() const override;
  Shots shots() const;
  bool is_to_all() const { return plan().receivers.empty(); }
  bool has_result() const { return plan().is_receiver(self()); }

  // What this rank has for a member: a share of its input, all of it, or the member's part.
  Share share_for(int member) const;
  std::size_t share_stride() const;
  const std::byte* sent_to(int member) const;
  // The room has three areas: what is packed; what each member has sent; what was reduced.
  std::byte* area(std::size_t number) const { return room() + number * area_bytes_; }
  std::byte* received_from(int member) const { return area(1) + static_cast<std::size_t>(member) * share_stride(); }
  const std::byte* input_of(int member) const { return member == self() ? sent_to(member) : received_from(member); }

  Copies packed() const;
  Operations exchange() const;
  Operations collect() const;
  ReduceLaunch reduce(std::byte* to) const;

  const std::size_t area_bytes_;
};

}  // namespace ciranda::cuda
