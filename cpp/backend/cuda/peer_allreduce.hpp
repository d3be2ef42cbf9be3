// PeerAllreduce: an allreduce in the memory of GPUs, a chunk after the other:
//
//   pack      the input into this rank's slot
//   reduce    the slots of all ranks, in rank order: a small chunk whole, to the output (one shot); else this rank's
//             share, to its room (two shots), and
//   unpack    from the rooms of all ranks to the output
//
// The host launches a phase once all ranks whose memory it reads have published that the phase before has ended, so no
// kernel waits for another rank. The counters are those of algorithms in shared memory (ArenaSession): a slot is packed
// again when all ranks have consumed the chunk before the last one, which was in it.
//
// The plan is done when its results are in the output: no copy is still under way.
//
// Called by PeerBackend; one thread (the holder of the progress lock).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/cuda/peer_group.hpp"
#include "collective/running_collective.hpp"
#include "fuse/plan.hpp"

namespace ciranda::cuda {

class PeerAllreduce final : public RunningCollective {
 public:
  // The group and the plan outlive this. REQUIRES: the group is usable; an allreduce of at least one byte.
  PeerAllreduce(PeerGroup& group, const Plan& plan);

  Progress step() override;
  std::vector<int> awaited() const override;
  Status status() const override { return status_; }
  std::string awaited_device() const override { return group_.stream.awaited_device(); }

 private:
  enum class Phase : std::uint8_t {
    kSlot,     // waits until the slot is free
    kPacking,  // waits for the GPU, as in each phase that ends in -ing
    kPacked,   // waits for the other ranks
    kReducing,
    kReduced,  // waits for the other ranks
    kUnpacking,
  };
  struct Share {
    std::size_t at;
    std::size_t n_bytes;
  };

  void pack();
  void reduce();
  void unpack();
  Progress end_chunk();
  // Whether the work on the GPU has ended without an error. Sets status_ when it ends.
  bool has_ended();
  bool is_one_shot() const;
  // The share of a member in the current chunk.
  Share share(int member) const;
  std::byte* slot(int member) const;
  std::byte* room(int member) const;

  PeerGroup& group_;
  const Plan& plan_;
  std::uint64_t chunk_;
  std::size_t offset_ = 0;  // of the chunk, in the plan
  std::size_t n_bytes_;     // of the chunk
  Phase phase_ = Phase::kSlot;
  Status status_;
};

}  // namespace ciranda::cuda
