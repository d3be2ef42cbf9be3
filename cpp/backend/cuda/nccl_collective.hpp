// NcclCollective: what all collectives by NCCL have in common. A plan is executed a chunk after the other, in one
// stream:
//
//   moves     pack what is in several pieces, scale, and have NCCL move and combine it. From and to the tensors
//             themselves where a chunk is one piece of them
//   results   the rest: divide, scale, unpack
//
// It is done when all of it is queued: the host waits for no GPU. After a failure the results are void (DeviceWork).
// Where the plan comes after events of a graph, all of it becomes a part of that instead, with a room of the graph's
// own.
//
// A chunk is the same range of the plan on all ranks, who make the same calls of NCCL for it. Whether a rank packs is
// its own affair.
//
// Called by NcclBackend, through NcclBroadcast, NcclExchange, NcclReduction and NcclOrderedReduction, which implement
// it; one thread (the holder of the progress lock).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "backend/cuda/copies.hpp"
#include "backend/cuda/kernels/launches.hpp"
#include "backend/cuda/nccl_group.hpp"
#include "backend/cuda/nccl_operation.hpp"
#include "collective/running_collective.hpp"
#include "fuse/plan.hpp"

namespace ciranda::cuda {

class NcclCollective : public RunningCollective {
 public:
  Progress step() final;
  std::vector<int> awaited() const final { return {}; }
  Status status() const final { return status_; }
  std::string awaited_device() const final;
  std::shared_ptr<DeviceWork> device_work() const final { return work_; }

 protected:
  using Does = NcclOperation::Does;
  using Operations = std::vector<NcclOperation>;
  struct Zeros {
    std::byte* to;
    std::size_t n_bytes;
  };
  // Copies by one launch, a reduction, or a group of NCCL's.
  using Step = std::variant<Copies, Zeros, ReduceLaunch, Operations>;
  using Steps = std::vector<Step>;

  // The group and the plan outlive this. `most_bytes`: of plan.n_bytes, in a chunk. REQUIRES: the group is usable;
  // plan.n_bytes > 0.
  NcclCollective(NcclGroup& group, const Plan& plan, std::size_t most_bytes);

  // Of the chunk, in their order; what is empty is left out.
  virtual Steps moves() const = 0;
  virtual Steps results() const = 0;

  // --- for these two
  const Plan& plan() const { return plan_; }
  int n_members() const { return group_.mesh.size(); }
  int self() const { return group_.mesh.rank(); }
  // The chunk's range of the plan's bytes.
  std::size_t offset() const { return offset_; }
  std::size_t n_bytes() const { return n_bytes_; }
  // How many bytes of it a part of the plan has that is n_bytes long.
  std::size_t n_bytes_of(std::size_t n_bytes) const;
  // This rank's memory for what is packed, or cannot be received in place.
  std::byte* room() const;
  // The largest aligned size of which `n` fit into the room.
  static std::size_t share_of_room(const NcclGroup& group, std::size_t n);

  // The range in the tensors, if it is one piece there that kernels and NCCL may use; else null.
  static const std::byte* whole(const InputPieces& pieces, std::size_t offset, std::size_t n_bytes);
  static std::byte* whole(const OutputPieces& pieces, std::size_t offset, std::size_t n_bytes);
  // What moves nothing is left out.
  static void call(Operations& to, const NcclOperation& operation) {
    if (operation.count > 0) to.push_back(operation);
  }

 private:
  static Status fill(const Zeros& zeros, const PeerStream::Tasks& tasks);
  std::string where() const { return "on " + group_.stream.name() + ", for NCCL"; }
  Steps all_steps();
  PeerStream::Work queueing(Steps steps) const;
  void queue(Steps steps);
  void record(Steps steps);

  NcclGroup& group_;
  const Plan& plan_;
  const std::shared_ptr<CapturedGraph> graph_;  // null: the work is done at once
  mutable bool lacks_room_ = false;             // the graph has none, and a step needs it
  const std::size_t most_bytes_;
  std::size_t offset_ = 0;
  std::size_t n_bytes_;
  std::shared_ptr<DeviceWork> work_;  // null: it has not begun
  Status status_;
};

}  // namespace ciranda::cuda
