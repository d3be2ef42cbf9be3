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

enum class Does : std::uint8_t { kAllreduce, kReduce, kReducescatter, kAllgather, kBroadcast, kSend, kReceive };

// What a rank's kernel is to do: alike on all ranks, but for sends and receives.
struct Call {
  Does does = Does::kAllreduce;
  std::size_t count = 0;
  cuda::ncclDataType_t type = cuda::ncclDataType_t::kUint8;
  cuda::ncclRedOp_t op = cuda::ncclRedOp_t::kSum;
  int peer = -1;             // the root, or the other rank
  std::uint64_t number = 0;  // of those that are alike, in the communicator, from 1 on

  bool operator==(const Call&) const = default;
};

class Segment {
 public:
  static constexpr std::size_t kSlotBytes = 64 << 10;
  static constexpr std::size_t kMailBytes = 16 << 10;
  static constexpr int kMostRanks = 8;

  // What one rank sends to another, a piece at a time.
  struct Mailbox {
    std::atomic<std::uint64_t> n_written;
    std::atomic<std::uint64_t> n_read;
    std::size_t n_bytes;  // of the whole transfer
    std::byte piece[kMailBytes];
  };
  struct Part {
    std::atomic<bool> has_joined;
    cuda::CUuuid gpu;
    Call call;
    std::atomic<std::uint64_t> n_given;  // pieces of tensors that lie in the slot, or have
    std::atomic<std::uint64_t> n_taken;  // pieces that this rank has read from all slots
    std::byte slot[kSlotBytes];
    Mailbox from[kMostRanks];
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
