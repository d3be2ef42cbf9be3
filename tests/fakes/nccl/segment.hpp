// Segment: memory that the ranks of a communicator share, by the name in its id.
//
// Threads: any; a rank writes its own part.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "backend/cuda/nccl_api.hpp"

namespace ciranda::fakes {

// What a rank's kernel is to do: alike on all ranks.
struct Call {
  std::uint64_t number;  // of the communicator, from 1 on
  std::size_t count;
  cuda::ncclDataType_t type;
  cuda::ncclRedOp_t op;

  bool operator==(const Call&) const = default;
};

class Segment {
 public:
  static constexpr std::size_t kSlotBytes = 64 << 10;

  struct Part {
    std::atomic<bool> has_joined;
    cuda::CUuuid gpu;
    Call call;
    std::atomic<std::uint64_t> n_given;  // pieces of tensors that lie in the slot, or have
    std::atomic<std::uint64_t> n_taken;  // pieces that this rank has read from all slots
    std::byte slot[kSlotBytes];
  };

  // Makes it, or maps what another rank has made.
  Segment(const cuda::ncclUniqueId& id, int n_ranks);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  Part& of(int rank) const { return parts_[rank]; }
  int n_ranks() const { return n_ranks_; }
  // Nobody else will map it.
  void forget_name();

 private:
  const std::string name_;
  const int n_ranks_;
  Part* parts_ = nullptr;
};

}  // namespace ciranda::fakes
